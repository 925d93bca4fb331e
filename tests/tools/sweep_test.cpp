#include <cmath>
#include <map>

#include "engine/eval/sweep_log.h"
#include "kernels/error.h"
#include "tests/tools/program.h"
#include "tools/measuring.h"

// perplexity, passkey and sweep as a user runs them.
namespace lariat::test {
namespace {

// The data that a report draws.
Json data_of(const std::filesystem::path& report) {
  const std::string page = slurp(report), open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find('<', begin) - begin));
}

class MeasuringTest : public FolderTest {
 protected:
  std::string model() const { return " --model " + model_.string(); }
  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  // A sweep small enough for a test, without anything that depends on how fast the machine is.
  std::string small_sweep(const std::string& report) const {
    return "sweep" + model() + " --file " + text_.string() + " --report " + file(report) +
           " --scalings none,linear,yarn,dynamic-yarn --lengths 256,640 --depths 0,1"
           " --trials 2 --no-speed --device cpu --threads 1 --max-tokens 1000";
  }

  static std::vector<std::string> comparable(const std::filesystem::path& log) {
    std::vector<std::string> lines;
    for (const auto& record : read_sweep_log(log).records) lines.push_back(without_timing(record).dump());
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  std::filesystem::path model_ = kDemo, text_ = model_ / "heldout.txt";
};

// Those that measure next to nothing, which sanitizers run as well.
using MeasuringErrors = MeasuringTest;

// Compares perplexities with those of transformers, in float32 with float64 sums. `folder` holds the model
// and the text.
void expect_golden_perplexity(const Json& golden, const std::filesystem::path& folder) {
  const std::string model = (folder / golden["model"].get<std::string>()).string(),
                    text = (folder / golden["text"].get<std::string>()).string();
  std::map<std::string, std::vector<Json>> runs;  // one for all lengths of window, by its options
  for (const auto& expected : golden["results"]) {
    std::string options = " --method " + expected["method"].get<std::string>();
    if (!expected["stride"].is_null()) options += " --stride " + expected["stride"].dump();
    if (const Json scaling = expected["config"].value("rope_scaling", Json()); !scaling.is_null()) {
      options += " --rope-scaling " + scaling["rope_type"].get<std::string>() + " --rope-factor " +
                 scaling["factor"].dump() + " --rope-steps exact";
    }
    runs[options + " --ctx "].push_back(expected);
  }
  EXPECT_GE(golden["results"].size(), 9U);
  for (const auto& [options, expectations] : runs) {
    SCOPED_TRACE(options);
    std::string lengths;
    for (const Json& expected : expectations)
      lengths += (lengths.empty() ? "" : ",") + expected["ctx"].dump();
    const Json results = json_of(run_lariat(
        "perplexity --model " + model + " --file " + text + " --max-tokens " + golden["text_tokens"].dump() +
        " --dtype f32 --kv-dtype f32 --json --device cpu --threads 1" + options + lengths))["results"];
    ASSERT_EQ(results.size(), expectations.size());
    for (size_t i = 0; i < results.size(); ++i) {
      for (const char* key : {"ctx", "tokens"}) EXPECT_EQ(results[i][key], expectations[i][key]);
      Json stride = expectations[i]["stride"];  // as it was asked for
      if (!stride.is_null())
        stride = std::min(stride.get<int64_t>(), expectations[i]["ctx"].get<int64_t>() - 1);
      EXPECT_EQ(results[i]["stride"], stride);
      for (const auto& [key, tolerance] : {std::pair("nll", 1e-4), {"ppl", 1e-4}, {"stderr", 1e-3}}) {
        const double found = results[i][key], expected = expectations[i][key];
        EXPECT_NEAR(found / expected, 1.0, tolerance) << key << " " << found << ", golden " << expected;
      }
    }
  }
}

TEST_F(MeasuringTest, PerplexityEqualsTheGolden) {
  expect_golden_perplexity(Json::parse(slurp(kSource / "tests/golden/demo/perplexity.json")), kSource);
}

TEST_F(MeasuringTest, PerplexityOfStories260KEqualsTheGolden) {
  const Json golden = Json::parse(slurp(kSource / "tests/golden/perplexity.json"));
  LARIAT_NEEDS(shared_dir() / golden["model"].get<std::string>());
  LARIAT_NEEDS(shared_dir() / golden["text"].get<std::string>());
  expect_golden_perplexity(golden, shared_dir());
}

TEST_F(MeasuringTest, EveryTaskKeepsItsContract) {
  for (const char* task : {"passkey", "multikey", "multivalue", "multiquery", "tracking"}) {
    SCOPED_TRACE(task);
    const bool passkey = std::string_view(task) == "passkey";
    const Json found =
        json_of(run_lariat("passkey" + model() + " --lengths " + (passkey ? "600,512" : "768") +
                           " --depths 0.5,1 --trials 2 --seed 7 --device cpu --json --report " +
                           file("passkey.html") + " --task " + task + " --haystack " + text_.string()));
    EXPECT_EQ(found["task"], task);
    ASSERT_EQ(found["results"].size(), passkey ? 4U : 2U);
    std::map<std::string, double> recall;  // by length
    for (const Json& cell : found["results"]) {
      ASSERT_EQ(cell["answers"].size(), 2U);
      double sum = 0;
      int64_t correct = 0;
      for (const auto& answer : cell["answers"]) {
        const std::string text = answer["answer"];
        size_t held = 0;
        for (const std::string one : answer["expected"]) held += text.find(one) != std::string::npos ? 1 : 0;
        if (passkey) held = answer["correct"] ? 1 : 0;  // by a rule of its own
        EXPECT_EQ(answer["found"].size(), held) << answer;
        EXPECT_DOUBLE_EQ(answer["recall"], static_cast<double>(held) / answer["expected"].size());
        EXPECT_EQ(answer["correct"], held == answer["expected"].size());
        sum += answer["recall"].get<double>();
        correct += answer["correct"] ? 1 : 0;
      }
      EXPECT_EQ(cell["trials"], 2);
      EXPECT_EQ(cell["correct"], correct);
      EXPECT_DOUBLE_EQ(cell["recall"], sum);
      recall[cell["length"].dump()] += sum;
    }
    for (const auto& [length, sum] : recall) EXPECT_DOUBLE_EQ(found["accuracy"][length], sum / 4);
    const Json report = data_of(dir_ / "passkey.html");
    EXPECT_EQ(report["results"], found["results"]);
    EXPECT_EQ(report["sweep"]["model"]["name"], "demo");
  }
}

TEST_F(MeasuringTest, ASweepOfATaskAddsUpRecallAndIsNotContinuedWithAnother) {
  const std::string common =
      "sweep" + model() + " --report " + file("task.html") +
      " --scalings none --lengths 900 --depths 0.5 --trials 2 --no-speed"
      " --no-growing --no-perplexity --device cpu --quiet --task multivalue --haystack ";
  put("hay.txt", std::string(slurp(text_).substr(0, 20'000)));
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
  put("hay.txt", "Another text of that name. " + slurp(text_).substr(0, 20'000));
  expect_error(run_lariat(common + file("hay.txt") + " --resume"), 1, "passkey.haystack.fingerprint");
}

TEST_F(MeasuringTest, SweepWritesAReportThatSaysWhoWon) {
  const Outcome outcome = run_lariat(small_sweep("out.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Beyond the original 512 tokens "));
  const Json report = data_of(dir_ / "out.html");
  EXPECT_EQ(report["results"].size(), 5U + 4U * 2 * 3);
  EXPECT_TRUE(holds(outcome.out, report["conclusions"].back().get<std::string>()));
  EXPECT_TRUE(holds(outcome.out, "dynamic-yarn stale"));
  const SweepRecords log = read_sweep_log(dir_ / "out.jsonl");
  EXPECT_EQ(log.records.size(), 5U + 4U * 2 * 3);
  for (const auto& record : log.records) {
    const bool passkey = record["kind"] == "passkey", perplexity = record["kind"] == "perplexity";
    EXPECT_TRUE(!perplexity || record["tokens"] == 1000) << record;
    EXPECT_TRUE(!passkey || record["trials"] == 2) << record;
  }
  // Again, without --resume: the earlier results are kept aside.
  const Outcome again = run_lariat(small_sweep("out.html") + " --no-growing --no-passkey");
  EXPECT_TRUE(holds(again.err, "out.jsonl.old; --resume would have continued them"));
  EXPECT_EQ(comparable(dir_ / "out.jsonl.old").size(), 5U + 4U * 2 * 3);
  // Another sweep does not continue them.
  expect_error(run_lariat(small_sweep("out.html") + " --no-growing --no-passkey --resume --seed 9 --quiet"),
               1, "out.jsonl: holds results of another sweep (passkey.seed: 0 there, 9 here)");
}

TEST_F(MeasuringTest, ShardsMergeToTheReportOfOneProcess) {
  ASSERT_EQ(run_lariat(small_sweep("whole.html")).code, 0);
  const Outcome first = run_lariat(small_sweep("parts.html") + " --shard 0/2");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(holds(first.err, "shard 0 of 2 is done; when all are: lariat sweep --merge"));
  const std::string a = file("parts.shard-0-of-2.jsonl"), b = file("parts.shard-1-of-2.jsonl");
  const Outcome half = run_lariat("sweep --merge " + a + " --report " + file("half.html"));
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_TRUE(holds(half.err, "some results are missing"));
  ASSERT_EQ(run_lariat(small_sweep("parts.html") + " --shard 1/2").code, 0);
  EXPECT_EQ(comparable(a).size() + comparable(b).size(), comparable(dir_ / "whole.jsonl").size());
  EXPECT_EQ(slurp(dir_ / "parts.html"), slurp(dir_ / "whole.html"));  // the last shard wrote it by itself
  ASSERT_EQ(run_lariat("sweep --merge " + a + " " + b + " --report " + file("merged.html")).code, 0);
  EXPECT_EQ(slurp(dir_ / "merged.html"), slurp(dir_ / "whole.html"));
}

// A log that ends anywhere, in the middle of a line too, is gone on with, and what comes of it is the same.
TEST_F(MeasuringTest, PasskeysGoOnWithEachPromptThatWasAnswered) {
  const std::string command = "passkey" + model() +
                              " --device cpu --threads 1 --json --lengths 640,768"
                              " --task passkey,multivalue --depths 0,1 --trials 2 --results ";
  const Json whole = json_of(run_lariat(command + file("whole.jsonl")));
  ASSERT_EQ(whole["tasks"].size(), 2U);
  EXPECT_EQ(whole["tasks"][1]["task"], "multivalue");
  const std::string log = slurp(dir_ / "whole.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1 + 2 * 2 * 2 * 2);
  const size_t header = log.find('\n') + 1;
  for (const size_t at : {header, header + 10, log.size() / 2, log.size() - 1, log.size()}) {
    put("part.jsonl", log.substr(0, at));
    const Outcome outcome = run_lariat(command + file("part.jsonl") + " --resume");
    EXPECT_EQ(json_of(outcome), whole) << at;
    EXPECT_EQ(comparable(dir_ / "part.jsonl"), comparable(dir_ / "whole.jsonl")) << at;
  }
  // One by one they are answered as together.
  const Json together = json_of(run_lariat(command.substr(0, command.find(" --results"))));
  EXPECT_EQ(together, whole);
  expect_error(run_lariat(command + file("whole.jsonl") + " --resume --seed 3"), 1, "passkey.seed");
  expect_error(run_lariat(command + file("whole.jsonl") + " --resume --rope-scaling dynamic --rope-factor 2"),
               1, "of another sweep (");
}

TEST_F(MeasuringTest, LossesGoOnWithEachWindowAndBucketThatWasRead) {
  const std::string command = "perplexity" + model() + " --file " + text_.string() +
                              " --device cpu --threads 1 --json --max-tokens 700 --results ";
  for (const std::string method : {" --ctx 128,256", " --method growing --ctx 600 --step 64 --buckets 3"}) {
    const Json whole = json_of(run_lariat(command + file("whole.jsonl") + method));
    EXPECT_EQ(json_of(run_lariat(command.substr(0, command.find(" --results")) + method)), whole);
    const std::string log = slurp(dir_ / "whole.jsonl");
    for (const size_t at : {log.find('\n') + 1, log.size() / 2, log.size()}) {
      put("part.jsonl", log.substr(0, at));
      EXPECT_EQ(json_of(run_lariat(command + file("part.jsonl") + method + " --resume")), whole) << at;
      EXPECT_EQ(slurp(dir_ / "part.jsonl"), log) << at;
    }
  }
  expect_error(run_lariat(command + file("whole.jsonl") + " --resume"), 1, "of another sweep (");
}

TEST_F(MeasuringTest, CsvAndPicturesAreWrittenBesideTheReport) {
  const std::string files = " --csv " + file("out.csv") + " --svg " + file("pictures");
  ASSERT_EQ(run_lariat(small_sweep("out.html") + files).code, 0);
  const std::string csv = slurp(dir_ / "out.csv");
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "measure,scaling,method,stale,length,depth,from,to,value,error,count");
  EXPECT_EQ(data_of(dir_ / "out.html")["csv"].get<std::string>().size(), csv.size());
  for (const char* name : {"growing", "perplexity", "found-none", "found-dynamic-yarn"})
    EXPECT_EQ(slurp(dir_ / "pictures" / (std::string(name) + ".svg")).rfind("<svg ", 0), 0U) << name;
  ASSERT_EQ(
      run_lariat("passkey" + model() + " --lengths 600 --depths 1 --trials 1 --device cpu" + files).code, 0);
  EXPECT_TRUE(holds(slurp(dir_ / "out.csv"), "\npasskey,none,,false,600,1.0,,,"));
  ASSERT_EQ(run_lariat("perplexity" + model() + " --file " + text_.string() +
                       " --ctx 256 --max-tokens 600 --device cpu --csv " + file("out.csv"))
                .code,
            0);
  EXPECT_TRUE(holds(slurp(dir_ / "out.csv"), "\nperplexity,none,,false,256,,,,"));
  expect_error(run_lariat(small_sweep("out.html") + " --svg " + file("out.csv")), 1, "is not a folder");
}

TEST_F(MeasuringErrors, AGrowingContextPrintsItsPositions) {
  const Outcome outcome = run_lariat("perplexity" + model() + " --file " + text_.string() +
                                     " --method growing --ctx 600 --buckets 2 --rope-scaling dynamic-yarn"
                                     " --device cpu --threads 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "0 - 299 "));
  EXPECT_TRUE(holds(outcome.out, "300 - 599 "));
}

TEST_F(MeasuringErrors, LossesAreWritten) {
  const std::string common =
      " --file " + text_.string() + " --device cpu --threads 1 --quiet --max-tokens 300 ";
  const auto result =
      json_of(run_lariat("perplexity" + model() + common + "--ctx 128 --json --losses " + file("l.jsonl")));
  std::ifstream in(file("l.jsonl"));
  std::string line;
  std::getline(in, line);
  const Json losses = Json::parse(line);
  EXPECT_EQ(losses["ctx"], 128);
  ASSERT_EQ(losses["losses"].size(), 300U);
  double sum = 0;
  for (const double loss : losses["losses"]) sum += loss;
  EXPECT_NEAR(sum / result["results"][0]["nll"].get<double>(), 1, 1e-5);
  std::getline(in, line);
  EXPECT_EQ(Json::parse(line)["tokens"].size(), 300U);

  const std::string sweep = "sweep" + model() + common +
                            "--scalings none,yarn --lengths 256 --no-growing --no-passkey "
                            "--no-speed --report " +
                            file("x.html") + " --losses " + file("s.jsonl");
  ASSERT_EQ(run_lariat(sweep).code, 0);
  EXPECT_TRUE(holds(slurp(file("s.jsonl")),
                    "{\"kind\":\"perplexity\",\"scaling\":\"none\",\"length\":256,\"losses\":["));
  EXPECT_TRUE(holds(slurp(file("s.jsonl")), "\"same_as\":{\"kind\":\"perplexity\",\"scaling\":\"none\""));
}

// README's sweep, as it stands, says what it will do and how long that takes, before it does anything.
TEST_F(MeasuringErrors, ASweepSaysItsPlan) {
  const Outcome outcome = run_lariat("sweep" + model() + " --report " + file("x.html") +
                                     " --scalings none,yarn --lengths 512 --no-passkey --device cpu");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "lariat: lengths 512; 8192 tokens of "));
  EXPECT_TRUE(holds(outcome.err, "; windows overlap by 256 tokens\n"));
  EXPECT_TRUE(holds(outcome.err, "lariat: about "));
  EXPECT_TRUE(holds(outcome.err, " (growing "));
  EXPECT_TRUE(holds(outcome.out, "At 512 tokens every scaling reads alike"));
  put("short.txt", slurp(text_).substr(0, 3000));
  const Outcome shorter = run_lariat("sweep" + model() + " --report " + file("y.html") + " --file " +
                                     file("short.txt") + " --scalings none --quick --device cpu");
  ASSERT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_TRUE(holds(shorter.err, "short.txt has "));
  EXPECT_TRUE(holds(shorter.err, "lariat: the length 2048 is left out: "));
}

TEST_F(MeasuringErrors, ASweepTakesMethodsBesideScalings) {
  const Outcome outcome = run_lariat("sweep" + model() + " --report " + file("x.html") + " --svg " +
                                     file("pictures") + " --csv " + file("x.csv") +
                                     " --scalings none,dca,sinks/sinks=4/window=124+yarn --lengths 640"
                                     " --max-tokens 700 --depths 0.5 --trials 1 --no-speed --device cpu");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "lariat: dca is dca/chunk=384/window=128\n"));
  EXPECT_TRUE(holds(outcome.out, "\nsinks/sinks=4/window=124+yarn ×1.25 "));
  EXPECT_TRUE(holds(outcome.out, "passkeys, dca\n"));
  EXPECT_TRUE(holds(outcome.out, "Beyond the original 512 tokens "));
  EXPECT_EQ(data_of(dir_ / "x.html")["sweep"]["methods"]["dca"], "dca/chunk=384/window=128");
  EXPECT_TRUE(holds(slurp(dir_ / "x.csv"), "\nperplexity,yarn,sinks/sinks=4/window=124,false,640,"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "pictures/found-dca.svg"));
}

TEST(Meters, SayALineWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  Meter meter("sweep", false, 0), quiet("sweep", true, 0), rare("sweep", false);
  meter.show(0.25, "2 of 8 measured  ");
  quiet.show(0.5, "");
  rare.show(0.5, "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lariat: sweep: 25 % done in 0:01, 2 of 8 measured  \n");
  EXPECT_EQ(duration(59.2), "1:00");
  EXPECT_EQ(duration(3723), "1:02:03");
}

TEST_F(MeasuringErrors, AShortHaystackIsRepeatedAndThatIsSaid) {
  put("short.txt", "It was a short story.");
  const Outcome outcome =
      run_lariat("passkey" + model() + " --device cpu --lengths 600 --depths 1 --trials 1" + " --haystack " +
                 file("short.txt"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(holds(outcome.err, "short.txt is shorter than a prompt of 600 tokens and is repeated"));
}

TEST_F(MeasuringErrors, MistakesAreOneLine) {
  std::string story;
  for (int i = 0; i < 300; ++i) story += "Once upon a time. ";
  put("empty.txt", "");
  put("long.txt", std::string(5000, 'a'));
  put("spaces.txt", " \n\t\r\n ");
  put("cut.txt", "caf\xC3");
  put("late.txt", story + "caf\xE9 " + story);
  const std::string perplexity = "perplexity" + model() + " --device cpu --threads 1 ",
                    book = perplexity + "--file " + text_.string() + " ",
                    passkey = "passkey" + model() + " --device cpu --lengths 600 ",
                    sweep = small_sweep("x.html") + " ";
  struct Case {
    std::string command;
    int code;
    std::string part;
  };
  std::vector<Case> cases = {
      {perplexity + "--file " + file("empty.txt"), 1, "empty.txt: the file is empty"},
      {perplexity + "--file " + file("missing.txt"), 1, "missing.txt: cannot be read"},
      {perplexity + "--file " + dir_.string(), 1, "is a folder"},
      {perplexity + "--file " + file("long.txt") + " --ctx 100000000000", 1,
       "a window of 100000000000 tokens: the KV cache would take"},
      {perplexity + "--ctx 64 --json --file " + file("late.txt"), 1, "late.txt: byte 5403 is not UTF-8"},
      {book + "--method cubes", 2, "cubes"},
      {book + "--method growing --step 0", 2, "--step"},
      {book + "--method growing --ctx 400000", 1, "a context of 400000 tokens"},
      {book + "--method growing --load-cache x.ctx", 2, "in one piece"},
      {"passkey" + model() + " --device cpu --lengths 20", 1,
       "20 tokens is too short: without filler it has "},
      {passkey + "--task haystack", 2, "haystack"},
      {passkey + "--chat", 1, "there is no chat template"},
      {passkey + "--haystack " + file("empty.txt"), 1, "empty.txt: there is no text in the file"},
      {passkey + "--haystack " + file("spaces.txt"), 1, "spaces.txt: there is no text in the file"},
      {passkey + "--haystack " + file("missing.txt"), 1, "missing.txt: "},
      {passkey + "--haystack " + file("cut.txt"), 1, "cut.txt: byte 3 is not UTF-8"},
      {"sweep" + model(), 2, "--report"},
      {"sweep --report " + file("x.html"), 2, "--model"},
      {small_sweep("no/such/folder.html"), 1, "there is no folder"},
      {sweep + "--lengths 4096", 1,
       "heldout.txt: --max-tokens takes 1000 tokens of it and the longest window holds 4095; use "
       "--max-tokens 4095 "
       "or more, or "
       "--lengths up to 1001"},
      {sweep + "--lengths 512,400000000", 1, "a length of 400000000: the KV cache would take"},
      {sweep + "--lengths 16", 1, "16 tokens is too short"},
      {sweep + "--position-method dca", 2, "use --scalings instead of --position-method"},
      {sweep + "--scalings 'dca stale'", 2, "--scalings dca stale: keys are stale only where a scale moves"},
  };
  for (const char* shard : {"2/2", "-1/4", "1/0", "1", "/", "a/b", "1/4x", "1//4", "' 1/4'"})
    cases.push_back({sweep + "--shard " + shard, 2, "give i/n"});
  for (const auto& [command, code, part] : cases) {
    SCOPED_TRACE(command);
    expect_error(run_lariat(command), code, part);
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x.html"));
}

}  // namespace
}  // namespace lariat::test
