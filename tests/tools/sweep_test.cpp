#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/eval/sweep_log.h"
#include "kernels/error.h"
#include "tests/tools/program.h"

// perplexity, passkey and sweep as a user runs them.
namespace lariat::test {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path source_dir() { return LARIAT_SOURCE_DIR; }
std::filesystem::path shared_dir() { return source_dir() / "../shared"; }

// What a report draws.
Json data_of(const std::filesystem::path& report) {
  const std::string page = slurp(report), open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find('<', begin) - begin));
}

class MeasuringTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           fmt::format("lariat-measuring-{}-{}", getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }

  std::string model() const { return " --model " + model_.string(); }
  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  void write(const std::string& name, const std::string& text) { std::ofstream(dir_ / name) << text; }
  // A sweep small enough for a test, without anything that depends on how fast the machine is.
  std::string small_sweep(const std::string& report, int max_tokens = 1000) const {
    return "sweep" + model() + " --file " + text_.string() + " --report " + file(report) +
           " --scalings none,linear,yarn,dynamic-yarn --lengths 256,640 --depths 0,1"
           " --trials 2 --no-speed --device cpu --threads 1"
           " --max-tokens " +
           std::to_string(max_tokens);
  }

  static std::vector<std::string> comparable(const std::filesystem::path& log) {
    std::vector<std::string> lines;
    for (const auto& record : read_sweep_log(log).records) lines.push_back(without_timing(record).dump());
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  std::filesystem::path model_ = source_dir() / "configs/demo", text_ = model_ / "heldout.txt", dir_;
};
// Those that measure next to nothing.
using MeasuringErrors = MeasuringTest;

// tests/golden/perplexity.json, from transformers in float32 with float64 sums.
TEST_F(MeasuringTest, PerplexityEqualsTheGolden) {
  model_ = shared_dir() / "models/stories260K";
  text_ = shared_dir() / "text/tinystories/train.txt";
  if (!std::filesystem::exists(model_ / "model.safetensors") || !std::filesystem::exists(text_))
    GTEST_SKIP() << "no ../shared with stories260K and its text beside the repository";
  std::ifstream in(source_dir() / "tests/golden/perplexity.json");
  const Json golden = Json::parse(in);
  int runs = 0;
  for (const auto& expected : golden["results"]) {
    std::string command = "perplexity" + model() + " --file " + text_.string() + " --max-tokens " +
                          golden["text_tokens"].dump() + " --dtype f32 --kv-dtype f32 --json" +
                          " --device cpu --threads 1 --method " + expected["method"].get<std::string>() +
                          " --ctx " + expected["ctx"].dump();
    if (!expected["stride"].is_null()) command += " --stride " + expected["stride"].dump();
    const Json& config = expected["config"];
    if (config.contains("rope_scaling")) {
      command += " --rope-scaling " + config["rope_scaling"]["rope_type"].get<std::string>() +
                 " --rope-factor " + config["rope_scaling"]["factor"].dump() + " --rope-steps exact";
    }
    const Outcome outcome = run_lariat(command);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json result = Json::parse(outcome.out)["results"][0];
    const auto near = [&](const char* key, double tolerance) {
      const double ratio = result[key].get<double>() / expected[key].get<double>();
      EXPECT_NEAR(ratio, 1.0, tolerance)
          << key << " of " << command << ": " << result[key] << ", golden " << expected[key];
    };
    EXPECT_EQ(result["tokens"], expected["tokens"]) << command;
    EXPECT_EQ(result["stride"], expected["stride"]);
    near("nll", 1e-4);
    near("ppl", 1e-4);
    near("stderr", 1e-3);
    ++runs;
  }
  EXPECT_GE(runs, 12);
}

TEST_F(MeasuringErrors, TextsThatCannotBeMeasuredAreNamed) {
  const std::string common = "perplexity" + model() + " --device cpu --file ";
  write("empty.txt", "");
  expect_error(run_lariat(common + file("empty.txt")), 1, "empty.txt: the file is empty");
  write("short.txt", "Once upon a time.");
  expect_error(run_lariat(common + file("short.txt")), 1,
               "short.txt: has 5 tokens and a window of 512 tokens holds 511 of them; use a longer text");
  expect_error(run_lariat(common + file("missing.txt")), 1, "missing.txt: cannot be read");
  expect_error(run_lariat(common + dir_.string()), 1, "is a folder");
  write("ok.txt", std::string(5000, 'a'));
  expect_error(run_lariat(common + file("ok.txt") + " --ctx 100000000000"), 1,
               "a window of 100000000000 tokens: the KV cache would take");
  expect_error(run_lariat(common + file("ok.txt") + " --ctx 100000000000"), 1,
               "use a shorter length (--ctx)");
  expect_error(run_lariat(common + file("ok.txt") + " --method cubes"), 2, "cubes");
  expect_error(run_lariat("passkey" + model() + " --device cpu --lengths 100000000000"), 1, "GiB");
  expect_error(run_lariat("passkey" + model() + " --device cpu --lengths 20"), 1,
               "20 tokens is too short: without filler it has ");
}

TEST_F(MeasuringErrors, BytesThatAreNotUtf8AreRefused) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "Once upon a time. ";
  write("latin1.txt", text + "caf\xE9 " + text);
  expect_error(
      run_lariat("perplexity" + model() + " --device cpu --ctx 64 --json --file " + file("latin1.txt")), 1,
      "latin1.txt: byte 5403 is not UTF-8");
}

TEST_F(MeasuringTest, PasskeyKeepsItsContract) {
  const Outcome outcome =
      run_lariat("passkey" + model() + " --lengths 600,512 --depths 0,0.5,1 --trials 2 --seed 7 --json" +
                 " --device cpu --report " + file("passkey.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["results"].size(), 6U);
  for (const auto& cell : json["results"]) {
    EXPECT_EQ(cell["trials"], 2);
    EXPECT_LE(cell["correct"], 2);
    EXPECT_EQ(cell["answers"].size(), 2U);
  }
  EXPECT_TRUE(json["accuracy"].contains("512"));
  const Json report = data_of(dir_ / "passkey.html");
  EXPECT_EQ(report["results"], json["results"]);
  EXPECT_EQ(report["sweep"]["model"]["name"], "demo");
}

// The demo model stands in the repository.
TEST(NeedleTasksRun, EveryTaskOfTheDemoModel) {
  const std::string hay = source_dir() / "configs/demo/heldout.txt";
  for (const char* task : {"passkey", "multikey", "multivalue", "multiquery", "tracking"}) {
    const Outcome outcome = run_lariat("passkey --model " + (source_dir() / "configs/demo").string() +
                                       " --lengths 768 --depths 0.5 --trials 2 --device cpu --json --task " +
                                       task + " --haystack " + hay);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json json = Json::parse(outcome.out);
    EXPECT_EQ(json["task"], task);
    const Json& cell = json["results"][0];
    double sum = 0;
    for (const auto& answer : cell["answers"]) {
      size_t found = 0;
      for (const auto& one : answer["expected"]) {
        found +=
            answer["answer"].get<std::string>().find(one.get<std::string>()) != std::string::npos ? 1 : 0;
      }
      if (json["task"] == "passkey") found = answer["correct"] ? 1 : 0;  // by a rule of its own
      EXPECT_EQ(answer["found"].size(), found) << answer;
      EXPECT_DOUBLE_EQ(answer["recall"], static_cast<double>(found) / answer["expected"].size());
      EXPECT_EQ(answer["correct"], found == answer["expected"].size());
      sum += answer["recall"].get<double>();
    }
    EXPECT_DOUBLE_EQ(cell["recall"], sum);
    EXPECT_DOUBLE_EQ(json["accuracy"]["768"], sum / 2);
  }
}

TEST_F(MeasuringErrors, HaystacksThatCannotBeUsedAreNamed) {
  const std::string common = "passkey" + model() + " --device cpu --lengths 600 --haystack ";
  write("empty.txt", "");
  expect_error(run_lariat(common + file("empty.txt")), 1, "empty.txt: there is no text in the file");
  write("spaces.txt", " \n\t\r\n ");
  expect_error(run_lariat(common + file("spaces.txt")), 1, "spaces.txt: there is no text in the file");
  expect_error(run_lariat(common + file("missing.txt")), 1, "missing.txt: ");
  write("cut.txt", "caf\xC3");
  expect_error(run_lariat(common + file("cut.txt")), 1, "cut.txt: byte 3 is not UTF-8");
  write("latin1.txt", "caf\xE9 au lait");
  expect_error(run_lariat(common + file("latin1.txt")), 1, "latin1.txt: byte 3 is not UTF-8");
  expect_error(run_lariat(common + "noise --task haystack"), 2, "haystack");
  expect_error(run_lariat(common + "noise --chat"), 1, "there is no chat template");
  write("short.txt", "It was a short story.");
  const Outcome outcome = run_lariat(common + file("short.txt") + " --depths 1 --trials 1");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("short.txt is shorter than a prompt of 600 tokens and is repeated"),
            std::string::npos)
      << outcome.err;
}

TEST_F(MeasuringTest, ASweepOfATaskAddsUpRecallAndIsNotContinuedWithAnother) {
  const std::string common =
      "sweep" + model() + " --report " + file("task.html") +
      " --scalings none --lengths 900 --depths 0.5 --trials 2 --no-speed"
      " --no-growing --no-perplexity --device cpu --quiet --task multivalue --haystack ";
  write("hay.txt", std::string(slurp(text_).substr(0, 20'000)));
  ASSERT_EQ(run_lariat(common + file("hay.txt")).code, 0);
  const SweepRecords log = read_sweep_log(file("task.jsonl"));
  ASSERT_EQ(log.records.size(), 1U);
  EXPECT_GE(log.records[0]["recall"], 0.0);
  EXPECT_LE(log.records[0]["recall"], 2.0);
  EXPECT_EQ(data_of(dir_ / "task.html")["hidden"].get<std::string>().find(
                "4 numbers of one name are hidden in hay"),
            0U);
  expect_error(run_lariat(common + file("hay.txt") + " --resume --needles 3"), 1,
               "(passkey.needles: 4 there, 3 here)");
  expect_error(run_lariat(common + "noise --resume"), 1, "passkey.haystack.name: \"hay.txt\" there");
  write("hay.txt", "Another text of that name. " + slurp(text_).substr(0, 20'000));
  expect_error(run_lariat(common + file("hay.txt") + " --resume"), 1, "passkey.haystack.fingerprint");
}

TEST_F(MeasuringTest, SweepWritesAReportThatSaysWhoWon) {
  const Outcome outcome = run_lariat(small_sweep("out.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Beyond the original 512 tokens, "), std::string::npos) << outcome.out;
  const Json report = data_of(dir_ / "out.html");
  EXPECT_EQ(report["results"].size(), 5U + 4U * 2 * 3);
  EXPECT_NE(outcome.out.find(report["conclusions"].back()), std::string::npos);
  EXPECT_NE(outcome.out.find("dynamic-yarn stale"), std::string::npos) << outcome.out;
  EXPECT_EQ(comparable(dir_ / "out.jsonl").size(), 5U + 4U * 2 * 3);
  // Again, without --resume: the earlier results are kept aside.
  const Outcome again = run_lariat(small_sweep("out.html") + " --no-growing --no-passkey");
  EXPECT_NE(again.err.find("out.jsonl.old; --resume would have continued them"), std::string::npos);
  EXPECT_EQ(comparable(dir_ / "out.jsonl.old").size(), 5U + 4U * 2 * 3);
  // Another sweep does not continue them.
  expect_error(run_lariat(small_sweep("out.html") + " --no-growing --no-passkey --resume --seed 9 --quiet"),
               1, "out.jsonl: holds results of another sweep (passkey.seed: 0 there, 9 here)");
}

TEST_F(MeasuringTest, ShardsMergeToTheReportOfOneProcess) {
  ASSERT_EQ(run_lariat(small_sweep("whole.html")).code, 0);
  const Outcome first = run_lariat(small_sweep("parts.html") + " --shard 0/2");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("shard 0 of 2 is done; when all are: lariat sweep --merge"), std::string::npos);
  const std::string a = file("parts.shard-0-of-2.jsonl"), b = file("parts.shard-1-of-2.jsonl");
  const Outcome half = run_lariat("sweep --merge " + a + " --report " + file("half.html"));
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_NE(half.err.find("some results are missing"), std::string::npos) << half.err;
  ASSERT_EQ(run_lariat(small_sweep("parts.html") + " --shard 1/2").code, 0);
  EXPECT_EQ(comparable(a).size() + comparable(b).size(), comparable(dir_ / "whole.jsonl").size());
  EXPECT_EQ(slurp(dir_ / "parts.html"), slurp(dir_ / "whole.html"));  // the last shard wrote it by itself
  ASSERT_EQ(run_lariat("sweep --merge " + a + " " + b + " --report " + file("merged.html")).code, 0);
  EXPECT_EQ(slurp(dir_ / "merged.html"), slurp(dir_ / "whole.html"));
}

TEST_F(MeasuringErrors, SweepRefusesWhatMakesNoSense) {
  expect_error(run_lariat("sweep" + model()), 2, "--report");
  expect_error(run_lariat("sweep --report " + file("x.html")), 2, "--model");
  expect_error(run_lariat(small_sweep("no/such/folder.html")), 1, "there is no folder");
  for (const char* shard : {"2/2", "-1/4", "1/0", "1", "/", "a/b", "1/4x", "1//4", "' 1/4'"})
    expect_error(run_lariat(small_sweep("x.html") + " --shard " + shard), 2, "give i/n");
  expect_error(run_lariat(small_sweep("x.html") + " --scalings none,yarm"), 2, "yarm");
  const auto lengths = [&](const char* list) {
    return run_lariat(small_sweep("x.html") + " --lengths " + list);
  };
  expect_error(lengths("4096"), 1,
               "heldout.txt: the text used has 1000 tokens and the longest window holds 4095");
  expect_error(lengths("512,400000000"), 1, "a length of 400000000: the KV cache would take");
  expect_error(lengths("16"), 1, "16 tokens is too short");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x.html"));
}

}  // namespace
}  // namespace lariat::test
