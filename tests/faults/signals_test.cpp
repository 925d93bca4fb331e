#include <pty.h>
#include <utmp.h>

#include "engine/eval/measurement_log.h"
#include "tests/faults/process.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

bool has_lines(const fs::path& file, int64_t count) {
  const std::string text = slurp(file);
  return std::count(text.begin(), text.end(), '\n') >= count;
}

std::string whole_report(const fs::path& dir) {
  Process sweep(dir / "whole", small_sweep(dir / "whole.html"));
  EXPECT_EQ(sweep.wait().code, 0);
  return slurp(dir / "whole.html");
}

void expect_resumes_to(const fs::path& report, const std::string& whole) {
  Process again(report.parent_path() / "again", with(small_sweep(report), {"--resume"}));
  const Outcome outcome = again.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(slurp(report), whole);
}

class EndingSignal : public testing::TestWithParam<int> {};

TEST_P(EndingSignal, KeepsTheTextOfAGeneration) {
  const fs::path dir = fresh_dir();
  Process story(dir, endless_story());
  ASSERT_TRUE(eventually([&] { return story.out().size() > 100; }));
  story.signal(GetParam());
  const Outcome outcome = story.wait_ten_seconds();
  EXPECT_LT(outcome.code, 128) << "killed by the signal";
  EXPECT_EQ(outcome.out.back(), '\n');
}

TEST_P(EndingSignal, KeepsTheResultsOfASweep) {
  const fs::path dir = fresh_dir();
  const std::string whole = whole_report(dir);
  Process sweep(dir / "run", small_sweep(dir / "part.html"));
  ASSERT_TRUE(eventually([&] { return has_lines(dir / "part.jsonl", 3); }));
  sweep.signal(GetParam());
  expect_one_line(sweep.wait_ten_seconds(), "part.jsonl | --resume");
  EXPECT_GE(read_log(dir / "part.jsonl").records.size(), 2U);
  EXPECT_NE(slurp(dir / "part.html").find("</html>"), std::string::npos) << "a partial report";
  expect_resumes_to(dir / "part.html", whole);
}

// Commands that answer several lines of a JSONL file at a time; files have their names.
std::vector<std::vector<std::string>> line_commands(const fs::path& dir) {
  std::ofstream score(dir / "score.jsonl"), generate(dir / "generate.jsonl");
  for (int i = 0; i < 1000; ++i) {
    Json line{{"prompt", fmt::format("There were {} ships. Once upon", i * i)}};
    generate << line << "\n";
    line["continuation"] = " a time";
    score << line << "\n";
  }
  const auto of = [&](const std::string& command) {
    const std::string file = dir / (command.substr(0, command.find(' ')) + ".jsonl");
    return with(words(command), {file, "--model", demo_model().string()});
  };
  const std::string common = " --device cpu --threads 1 --quiet ";
  return {of("score" + common + "--file"), of("generate --ignore-eos -n 60" + common + "--prompts")};
}

// Lines are complete and equal an undisturbed run's.
void expect_whole_lines(const fs::path& dir, std::vector<std::string> command, const std::string& out) {
  const auto count = std::count(out.begin(), out.end(), '\n');
  EXPECT_GT(count, 0);
  EXPECT_LT(count, 1000);
  const fs::path file = dir / (command[0] + ".jsonl"), first = dir / "first.jsonl";
  std::istringstream all(slurp(file));
  std::ofstream some(first);
  std::string line;
  for (int64_t i = 0; i < count && std::getline(all, line); ++i) some << line << "\n" << std::flush;
  std::ranges::replace(command, file.string(), first.string());
  Process undisturbed(dir / "undisturbed", command);
  const Outcome expected = undisturbed.wait();
  EXPECT_EQ(expected.code, 0) << expected.err;
  EXPECT_EQ(out, expected.out);
}

TEST_P(EndingSignal, KeepsTheAnswersOfLines) {
  const fs::path dir = fresh_dir();
  for (const auto& command : line_commands(dir)) {
    SCOPED_TRACE(command[0]);
    Process process(dir / command[0], command);
    ASSERT_TRUE(eventually([&] { return has_lines(dir / command[0] / "out", 1); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // into the next lines
    process.signal(GetParam());
    const Outcome outcome = process.wait_ten_seconds();
    const auto count = std::count(outcome.out.begin(), outcome.out.end(), '\n');
    expect_one_line(outcome, fmt::format("{} | {}", count, (dir / (command[0] + ".jsonl")).string()));
    expect_whole_lines(dir, command, outcome.out);
  }
}

// The first length finishes at once, the second does not.
std::vector<std::string> comparison(const std::string& lengths) {
  const std::string text = (demo_model() / "heldout.txt").string();
  return with(
      words("perplexity --against same --against-dtype f32 --stride 16 --max-tokens 1000 --device cpu "
            "--threads 1 --quiet"),
      {"--model", demo_model().string(), "--file", text, "--ctx", lengths});
}

TEST_P(EndingSignal, KeepsTheFiguresOfAComparison) {
  const fs::path dir = fresh_dir();
  Process first(dir / "first", comparison("40"));
  const std::string whole = first.wait().out;
  Process process(dir / "run", comparison("40,512"));
  ASSERT_TRUE(eventually([&] { return !process.out().empty(); }));
  EXPECT_EQ(process.out(), whole);
  process.signal(GetParam());
  const Outcome outcome = process.wait_ten_seconds();
  ASSERT_TRUE(outcome.out.starts_with(whole)) << outcome.out;
  int64_t tokens = -1;
  ASSERT_EQ(std::sscanf(outcome.out.c_str() + whole.size(), "sliding windows of 512, %ld token", &tokens), 1)
      << outcome.out;
  EXPECT_LT(tokens, 1000);
  expect_one_line(outcome, std::to_string(tokens));
}

INSTANTIATE_TEST_SUITE_P(
    Signals, EndingSignal, testing::Values(SIGINT, SIGTERM, SIGHUP), [](const auto& test) {
      return std::string(test.param == SIGINT ? "INT" : test.param == SIGTERM ? "TERM" : "HUP");
    });

TEST(Signals, AnIgnoredHangUpStaysIgnored) {  // nohup
  const fs::path dir = fresh_dir();
  const std::string whole = whole_report(dir);
  Process sweep(dir / "run", small_sweep(dir / "part.html"), [] { std::signal(SIGHUP, SIG_IGN); });
  ASSERT_TRUE(eventually([&] { return has_lines(dir / "part.jsonl", 2); }));
  sweep.signal(SIGHUP);
  EXPECT_EQ(sweep.wait().code, 0);
  EXPECT_EQ(slurp(dir / "part.html"), whole);
}

TEST(Signals, AKilledSweepResumesToTheSameReport) {
  const fs::path dir = fresh_dir();
  const std::string whole = whole_report(dir);
  for (const int lines : {2, 4, 6}) {
    Process sweep(dir / "run", with(small_sweep(dir / "part.html"), {"--resume"}));
    ASSERT_TRUE(eventually([&] { return has_lines(dir / "part.jsonl", lines); }));
    sweep.signal(SIGKILL);
    EXPECT_EQ(sweep.wait().code, 128 + SIGKILL);
    // A machine crash may leave half a line.
    std::ofstream(dir / "part.jsonl", std::ios::app) << "{\"kind\":\"perpl";
  }
  expect_resumes_to(dir / "part.html", whole);
}

// Finished answers and scores stay, to the line.
TEST(Signals, AKilledMeasurementResumes) {
  const fs::path dir = fresh_dir(), text = dir / "text.txt";
  std::string book;
  for (int i = 0; i < 600; ++i) book += "Once upon a time there were " + std::to_string(i * i) + " ships. ";
  std::ofstream(text) << book;
  const std::string perplexity = "perplexity --max-tokens 3000 --file " + text.string();
  // Kills at these lines.
  const std::pair<std::string, std::vector<int>> commands[] = {
      {"passkey --lengths 512,700 --depths 0,1 --trials 3", {2, 5, 9}},
      {perplexity + " --ctx 256,512 --stride 64", {2, 5, 9}},
      {perplexity + " --ctx 1500 --method growing --step 16 --rope-scaling dynamic-yarn", {1, 1}},
      {perplexity +
           " --ctx 1500 --method growing --step 16 --rope-scaling dynamic --rope-factor 2 --rope-cache stale",
       {1, 1}}};
  for (const auto& [command, kills] : commands) {
    SCOPED_TRACE(command);
    const fs::path log = dir / "part.jsonl";
    for (const char* file : {"part.jsonl", "whole.jsonl"}) fs::remove(dir / file);
    const auto measurement = [&, arguments = command](const fs::path& results) {
      return with(words(arguments + " --json --quiet --device cpu --threads 1"),
                  {"--model", demo_model().string(), "--results", results.string(), "--resume"});
    };
    Process whole(dir / "whole", measurement(dir / "whole.jsonl"));
    const Outcome expected = whole.wait();
    ASSERT_EQ(expected.code, 0) << expected.err;
    std::string before;
    for (const int lines : kills) {
      Process run(dir / "run", measurement(log));
      ASSERT_TRUE(eventually([&] { return has_lines(log, lines); }));
      run.signal(SIGKILL);
      EXPECT_EQ(run.wait().code, 128 + SIGKILL);
      const std::string now = slurp(log);
      EXPECT_EQ(now.rfind(before.substr(0, before.rfind('\n') + 1), 0), 0U);
      before = now;
    }
    Process again(dir / "again", measurement(log));
    const Outcome outcome = again.wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, expected.out);
    EXPECT_EQ(slurp(log).rfind(before.substr(0, before.rfind('\n') + 1), 0), 0U);
    for (const auto& file : fs::directory_iterator(dir)) EXPECT_NE(file.path().extension(), ".ctx");
  }
}

TEST(Signals, AKilledRunLeavesCompleteLines) {
  const fs::path dir = fresh_dir();
  for (const auto& command : line_commands(dir)) {
    SCOPED_TRACE(command[0]);
    Process process(dir / command[0], command);
    ASSERT_TRUE(eventually([&] { return has_lines(dir / command[0] / "out", 1); }));
    process.signal(SIGKILL);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 128 + SIGKILL);
    expect_whole_lines(dir, command, outcome.out);
  }
  Process first(dir / "first", comparison("40"));
  const std::string whole = first.wait().out;
  Process process(dir / "run", comparison("40,512"));
  ASSERT_TRUE(eventually([&] { return !process.out().empty(); }));
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait().out, whole);
}

// generate | head -1
TEST(Signals, AReaderThatHasSeenEnoughEndsTheText) {
  const fs::path dir = fresh_dir();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Process story(dir, endless_story(), [&] {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
  });
  close(ends[1]);
  char some[64];
  ASSERT_GT(read(ends[0], some, sizeof(some)), 0);
  close(ends[0]);
  const Outcome outcome = story.wait_ten_seconds();
  EXPECT_EQ(outcome.code, 128 + SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

// sweep 2>&1 | head -1, with a warning at the start.
TEST(Signals, ASweepGoesOnWithoutAReader) {
  const fs::path dir = fresh_dir();
  const std::string whole = whole_report(dir);
  fs::copy_file(dir / "whole.jsonl", dir / "part.jsonl");  // earlier results are renamed
  auto words = small_sweep(dir / "part.html");
  words.pop_back();  // --quiet
  Process sweep(dir / "run", words, [] {
    int ends[2];
    if (pipe(ends) != 0) return;
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
  });
  EXPECT_EQ(sweep.wait().code, 128 + SIGPIPE);
  EXPECT_TRUE(fs::exists(dir / "part.jsonl.old"));
  EXPECT_EQ(slurp(dir / "part.html"), whole);
}

// The terminal fails, and SIGHUP arrives.
TEST(Signals, AClosedTerminalLosesNothing) {
  const fs::path dir = fresh_dir();
  const std::string whole = whole_report(dir);
  int terminal = -1, side = -1;
  ASSERT_EQ(openpty(&terminal, &side, nullptr, nullptr, nullptr), 0);
  auto words = small_sweep(dir / "part.html");
  words.pop_back();  // --quiet
  Process sweep(dir / "run", words, [&] {
    close(terminal);
    login_tty(side);
  });
  close(side);
  ASSERT_TRUE(eventually([&] { return has_lines(dir / "part.jsonl", 3); }));
  close(terminal);
  EXPECT_EQ(sweep.wait_ten_seconds().code, 1);
  EXPECT_GE(read_log(dir / "part.jsonl").records.size(), 2U);
  expect_resumes_to(dir / "part.html", whole);
}

}  // namespace
}  // namespace lariat::test
