// lariat ask: rows of benchmarks under several columns.
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/eval/measurement_log.h"
#include "tests/tools/chat_program.h"
#include "tests/tools/measuring_program.h"

namespace lariat::test {
namespace {

// A passkey in `lines` lines of filler, as a RULER row. The demo model finds keys of up to 512 tokens.
Json passkey_row(int key, int lines) {
  const std::string filler =
      "\nThe grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
  const std::string line = fmt::format("\nThe pass key is {0}. Remember it. {0} is the pass key.", key);
  std::string text =
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will "
      "quiz you about the important information there.";
  for (int i = 0; i < lines; ++i) text += i == lines / 2 ? line : filler;
  return {{"index", 5},
          {"input", text + "\nWhat is the pass key?"},
          {"outputs", {std::to_string(key)}},
          {"answer_prefix", " The pass key is"}};
}

class AskTest : public MeasuringTest {
 protected:
  void put_rows(const std::string& name, const std::vector<Json>& rows) const {
    std::string lines;
    for (const Json& row : rows) lines += row.dump() + "\n";
    put(name, lines);
  }
  Outcome ask(const std::string& more) const {
    return run_lariat("ask" + model() + " --device cpu --threads 1 -n 6 " + more);
  }
  Json results(const std::string& more) const { return json_of(ask("--json " + more)); }
};

// Short runs, also for sanitizers.
using AskErrors = AskTest;

TEST_F(AskTest, ScoresEveryColumn) {
  put_rows("short.jsonl", {passkey_row(41527, 4), passkey_row(9163, 6)});
  put_rows("long.jsonl", {passkey_row(38214, 40), passkey_row(7052, 41)});
  const Json found = results("--file " + file("short.jsonl") + " --file " + file("long.jsonl") +
                             " --scalings none,yarn/factor=4 --results " + file("r.jsonl"));
  std::map<std::string, double> score;
  for (const Json& row : found["results"])
    score[row["scaling"].get<std::string>() + " " +
          std::filesystem::path(row.value("file", "all")).filename().string()] = row["score"];
  EXPECT_EQ(score["none short.jsonl"], 100);
  EXPECT_EQ(score["none long.jsonl"], 0);
  EXPECT_EQ(score["yarn/factor=4 short.jsonl"], 100);
  EXPECT_EQ(score["yarn/factor=4 long.jsonl"], 100);
  EXPECT_EQ(score["none all"], 50);
  EXPECT_EQ(found["differences"][0]["difference"], 50);
  const Measurements log = read_log(dir_ / "r.jsonl");
  EXPECT_EQ(log.records.size(), 8U);  // the same index in all rows
  for (const Record& record : log.records) {
    const auto& answer = std::get<RowAnswer>(record.value);
    EXPECT_GT(record.timing->seconds, 0);
    EXPECT_GT(answer.tokens, 100);
    EXPECT_LE(answer.new_tokens, 6);
  }
}

// Prompts, answers and scores of lariat passkey.
TEST_F(AskTest, RowsOfPasskeyTasksAreThePasskeyCommands) {
  for (const std::string task : {"passkey", "multivalue"}) {
    const Outcome made = run_lariat(
        fmt::format("tasks --task {} --lengths 400 --rows 5 --seed 3 --quiet --tokenizer {} --out {}", task,
                    model_.string(), file("rows.jsonl")));
    ASSERT_EQ(made.code, 0) << made.err;
    const Outcome asked = run_lariat(
        fmt::format("ask{} --device cpu --threads 1 --quiet --file {} --metric {} --results {}", model(),
                    file("rows.jsonl"), task == "passkey" ? "passkey" : "all", file(task + ".jsonl")));
    ASSERT_EQ(asked.code, 0) << asked.err;
    const std::vector<Record> records = read_log(dir_ / (task + ".jsonl")).records;
    const Json found = json_of(
        run_lariat("passkey" + model() +
                   " --device cpu --threads 1 --lengths 400 --trials 1 --seed 3 --json --task " + task));
    ASSERT_EQ(records.size(), found["results"].size());
    for (size_t i = 0; i < records.size(); ++i) {
      const auto& row = std::get<RowAnswer>(records[i].value);
      EXPECT_EQ(row.tokens, 400);
      EXPECT_EQ(row.answer, found["results"][i]["answers"][0]["answer"]);
      EXPECT_EQ(row.score, found["results"][i]["recall"]);
    }
  }
}

TEST_F(AskTest, AnInterruptedRunResumes) {
  std::vector<Json> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(passkey_row(1000 + 1371 * i, 5 + i));
  put_rows("rows.jsonl", rows);
  const std::string run =
      "--file " + file("rows.jsonl") + " --scalings none,yarn/factor=2 --quiet --results ";
  const Outcome whole = ask(run + file("whole.jsonl"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto expected = comparable(dir_ / "whole.jsonl");
  ASSERT_EQ(expected.size(), 12U);
  // As left by kill -9: some records, and a line that ends early.
  std::istringstream lines(slurp(dir_ / "whole.jsonl"));
  std::string line, cut;
  for (int i = 0; i < 6 && std::getline(lines, line); ++i) cut += line + "\n";
  std::getline(lines, line);
  put("cut.jsonl", cut + line.substr(0, line.size() / 2));
  const Outcome resumed = ask(run + file("cut.jsonl") + " --resume");
  EXPECT_EQ(resumed.out, whole.out);
  EXPECT_EQ(comparable(dir_ / "cut.jsonl"), expected);
  EXPECT_TRUE(slurp(dir_ / "cut.jsonl").starts_with(cut));  // finished rows are not asked again
  // Another prompt is another row; another metric scores the kept answers.
  const std::string before = slurp(dir_ / "cut.jsonl");
  EXPECT_EQ(ask(run + file("cut.jsonl") + " --resume --metric exact").code, 0);
  EXPECT_EQ(comparable(dir_ / "cut.jsonl"), expected);
  rows[2] = passkey_row(44444, 3);
  put_rows("rows.jsonl", rows);
  EXPECT_EQ(ask(run + file("cut.jsonl") + " --resume").code, 0);
  EXPECT_EQ(read_log(dir_ / "cut.jsonl").records.size(), 14U);
  // Without --resume earlier results are renamed.
  EXPECT_EQ(ask(run + file("whole.jsonl")).code, 0);
  EXPECT_EQ(comparable(dir_ / "whole.jsonl.old"), expected);
}

TEST_F(AskTest, ASignalLosesOneRowAtMost) {
  std::vector<Json> rows;
  for (int i = 0; i < 40; ++i) rows.push_back(passkey_row(1000 + 371 * i, 20));
  put_rows("rows.jsonl", rows);
  const std::string log = file("r.jsonl");
  const Outcome outcome = run_lariat(fmt::format(
      "version >/dev/null; ({} ask{} --device cpu --threads 1 -n 6 --quiet --file {} --results {} & pid=$!; "
      "while [ $(cat {} 2>/dev/null | wc -l) -lt 3 ]; do sleep 0.02; done; kill -TERM $pid; wait $pid)",
      lariat_program(), model(), file("rows.jsonl"), log, log));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  const size_t kept = comparable(log).size();
  EXPECT_GE(kept, 2U);
  EXPECT_LT(kept, rows.size());
  EXPECT_TRUE(holds(outcome.err, "--resume"));
}

TEST_F(AskTest, StopDecidesAndDropsColumns) {
  std::vector<Json> rows;
  for (int i = 0; i < 40; ++i) rows.push_back(passkey_row(1000 + 1171 * i, 40));
  put_rows("rows.jsonl", rows);
  const std::string run =
      "--file " + file("rows.jsonl") +
      " --scalings none,yarn/factor=4,linear/factor=1 --stop 0.1 --margin 0.3 --results " + file("r.jsonl") +
      " --svg " + file("rows.svg");
  const Json found = results(run);
  const Json &better = found["differences"][0], &equal = found["differences"][1];
  EXPECT_EQ(better["verdict"], "better");
  EXPECT_EQ(better["rows"], 8);  // all one way: 8 discordant rows at 0.1 / 2
  EXPECT_EQ(better["saved"], 32);
  EXPECT_GE(better["e_value"], 20);
  EXPECT_GT(better["low"], 0);
  EXPECT_EQ(equal["verdict"], "excluded");
  EXPECT_LT(equal["rows"], 40);
  EXPECT_FALSE(found["results"][0].contains("low"));
  EXPECT_EQ(found["results"][0]["rows"], equal["rows"]);
  const std::string picture = slurp(dir_ / "rows.svg");
  EXPECT_TRUE(names(picture, "<svg | from none | yarn/factor=4 | better after 8 rows | excluded after"));
  EXPECT_EQ(results(run + " --resume"), found);
  EXPECT_EQ(slurp(dir_ / "rows.svg"), picture);
}

TEST_F(AskErrors, PrefixLengthAndChoices) {
  Json row = passkey_row(41527, 4);
  put_rows("row.jsonl", {row});
  const auto answer_of = [&](const std::string& more) {
    EXPECT_EQ(run_lariat("ask" + model() + " --device cpu --threads 1 --quiet --file " + file("row.jsonl") +
                         " --results " + file("r.jsonl") + " " + more)
                  .code,
              0);
    const RowAnswer answer = std::get<RowAnswer>(read_log(dir_ / "r.jsonl").records.front().value);
    std::filesystem::remove(dir_ / "r.jsonl");
    return answer;
  };
  const RowAnswer with = answer_of("-n 3"), without = answer_of("-n 3 --no-prefix");
  EXPECT_EQ(with.new_tokens, 3);
  EXPECT_NE(with.prompt, without.prompt);
  EXPECT_LT(without.tokens, with.tokens);
  // RULER's length counts input and prefix without BOS, and the reserved tokens. The story does not end
  // there.
  row = {{"input", "Once upon"}, {"answer_prefix", " a time"}, {"outputs", {"x"}}};
  put_rows("row.jsonl", {row});
  const RowAnswer story = answer_of("");
  EXPECT_EQ(story.new_tokens, 128);
  for (const auto& [length, tokens] : {std::pair(story.tokens - 1 + 30, 30), {story.tokens - 1 + 31, 128}}) {
    row["length"] = length;
    put_rows("row.jsonl", {row});
    EXPECT_EQ(answer_of("").new_tokens, tokens);
    EXPECT_EQ(answer_of("--no-prefix").new_tokens, tokens);
  }
  row["max_new_tokens"] = 7;
  put_rows("row.jsonl", {row});
  EXPECT_EQ(answer_of("").new_tokens, 7);
  EXPECT_EQ(answer_of("-n 2").new_tokens, 2);
  put_rows("row.jsonl", {{{"question", "Say"}, {"choices", {"a", "b"}}, {"answer", 1}}});
  const RowAnswer chosen = answer_of("-n 1 --metric choice");
  put_rows("row.jsonl", {{{"question", "Say\nA. a\nB. b\nAnswer:"}, {"expected_answer", "B"}}});
  EXPECT_EQ(answer_of("-n 1 --metric choice").prompt, chosen.prompt);
}

using AskChat = ChatProgram;

TEST_F(AskChat, ThePrefixFollowsTheAssistantsHeader) {
  const auto prompt_of = [&](const std::string& input, const std::string& prefix, const std::string& more) {
    put("rows.jsonl", Json({{"input", input}, {"answer_prefix", prefix}, {"outputs", {"x"}}}).dump());
    const Outcome outcome = run_lariat(
        fmt::format("ask --model {} --device cpu --threads 1 -n 1 --quiet --file {} --results {}{}",
                    model_.string(), (dir_ / "rows.jsonl").string(), (dir_ / "r.jsonl").string(), more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::get<RowAnswer>(read_log(dir_ / "r.jsonl").records.front().value).prompt;
  };
  EXPECT_EQ(prompt_of("hi", " So", " --chat"), prompt_of("<s>" + rendered({"hi"}) + " So", "", ""));
}

TEST_F(AskErrors, BadRowsAreNamedAndTheOthersScored) {
  const std::string good = passkey_row(41527, 4).dump() + "\n";
  Json number = passkey_row(1, 4), empty = number, missing = number;
  number["outputs"] = {1};
  empty["outputs"] = Json::array();
  missing.erase("input");
  put("rows.jsonl", good + "{\"input\": \n\n" + number.dump() + "\n" + empty.dump() + "\n" + missing.dump() +
                        "\n{\"input\": \"\xFF\", \"outputs\": [\"a\"]}\n" + passkey_row(1, 400).dump() +
                        "\n[1]");
  const Outcome outcome = ask("--json --ctx 600 --file " + file("rows.jsonl"));
  EXPECT_EQ(outcome.code, 1);
  for (const int line : {2, 4, 5, 6, 7, 8, 9})
    EXPECT_TRUE(holds(outcome.err, fmt::format("rows.jsonl: line {}: ", line))) << outcome.err;
  EXPECT_FALSE(holds(outcome.err, "line 1:"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 8) << outcome.err;
  const Json found = Json::parse(outcome.out);
  EXPECT_EQ(found["refused"], 7);
  EXPECT_EQ(found["results"][0]["rows"], 1);
  EXPECT_EQ(found["results"][0]["score"], 100);
}

}  // namespace
}  // namespace lariat::test
