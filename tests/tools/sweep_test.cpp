#include <chrono>
#include <cmath>
#include <map>
#include <random>

#include "kernels/error.h"
#include "models/text/unicode.h"
#include "tests/tools/measuring_program.h"
#include "tools/measuring.h"

namespace lariat::test {
namespace {

// Compares with transformers (float32, float64 sums). `folder` holds model and text.
void expect_golden_perplexity(const Json& golden, const std::filesystem::path& folder) {
  const std::string model = (folder / golden["model"].get<std::string>()).string(),
                    text = (folder / golden["text"].get<std::string>()).string();
  std::map<std::string, std::vector<Json>> runs;
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
      Json stride = expectations[i]["stride"];
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

TEST_F(MeasuringTest, PerplexityEqualsTransformers) {
  expect_golden_perplexity(Json::parse(slurp(kSource / "tests/golden/demo/perplexity.json")), kSource);
}

TEST_F(MeasuringTest, PerplexityOfStories260KEqualsTransformers) {
  const Json golden = Json::parse(slurp(kSource / "tests/golden/perplexity.json"));
  LARIAT_NEEDS(shared_dir() / golden["model"].get<std::string>());
  LARIAT_NEEDS(shared_dir() / golden["text"].get<std::string>());
  expect_golden_perplexity(golden, shared_dir());
}

TEST_F(MeasuringTest, EveryTaskReportsConsistentResults) {
  for (const char* task : {"passkey", "multikey", "multivalue", "multiquery", "tracking"}) {
    SCOPED_TRACE(task);
    const bool passkey = std::string_view(task) == "passkey";
    const Json found =
        json_of(run_lariat("passkey" + model() + " --lengths " + (passkey ? "600,512" : "768") +
                           " --depths 0.5,1 --trials 2 --seed 7 --device cpu --json --report " +
                           file("passkey.html") + " --task " + task + " --haystack " + text_.string()));
    EXPECT_EQ(found["task"], task);
    ASSERT_EQ(found["results"].size(), passkey ? 4U : 2U);
    std::map<std::string, double> recall;
    for (const Json& cell : found["results"]) {
      ASSERT_EQ(cell["answers"].size(), 2U);
      double sum = 0;
      int64_t correct = 0;
      for (const auto& answer : cell["answers"]) {
        const std::string text = answer["answer"];
        size_t held = 0;
        for (const std::string one : answer["expected"]) held += text.find(one) != std::string::npos ? 1 : 0;
        if (passkey) held = answer["correct"] ? 1 : 0;
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

TEST_F(MeasuringTest, ATaskSweepSumsRecallAndRefusesAnotherText) {
  const std::string common =
      "sweep" + model() + " --report " + file("task.html") +
      " --scalings none --lengths 900 --depths 0.5 --trials 2 --no-speed"
      " --no-growing --no-perplexity --device cpu --quiet --task multivalue --haystack ";
  put("hay.txt", std::string(slurp(text_).substr(0, 20'000)));
  ASSERT_EQ(run_lariat(common + file("hay.txt")).code, 0);
  const Measurements log = read_log(file("task.jsonl"));
  ASSERT_EQ(log.records.size(), 1U);
  EXPECT_TRUE(std::get<Retrieval>(log.records[0].value).recall.has_value());
  EXPECT_TRUE(names(slurp(dir_ / "task.html"), "4 | hay.txt"));
  expect_error(run_lariat(common + "noise --resume"), 1, "passkey.haystack.name | hay.txt | noise");
  put("hay.txt", "Another text of that name. " + slurp(text_).substr(0, 20'000));
  expect_error(run_lariat(common + file("hay.txt") + " --resume"), 1, "passkey.haystack.fingerprint");
}

TEST_F(MeasuringTest, SweepWritesAReportWithTheWinner) {
  const Outcome outcome = run_lariat(small_sweep("out.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = data_of(dir_ / "out.html");
  EXPECT_EQ(report["results"].size(), 5U + 4U * 2 * 3);
  EXPECT_TRUE(holds(outcome.out, report["conclusions"].back().get<std::string>()));
  EXPECT_TRUE(names(outcome.out, "dynamic-yarn stale"));
  const Measurements log = read_log(dir_ / "out.jsonl");
  EXPECT_EQ(log.records.size(), 5U + 4U * 2 * 3);
  for (const auto& record : log.records) {
    const Json json = to_json(record);
    EXPECT_TRUE(record.kind() != Kind::kPerplexity || json["tokens"] == 1000) << json;
    EXPECT_TRUE(record.kind() != Kind::kPasskey || json["trials"] == 2) << json;
  }
  // Without --resume, earlier results are kept in another file.
  const Outcome again = run_lariat(small_sweep("out.html") + " --no-growing --no-passkey");
  EXPECT_TRUE(names(again.err, "out.jsonl.old | --resume"));
  EXPECT_EQ(comparable(dir_ / "out.jsonl.old").size(), 5U + 4U * 2 * 3);
}

TEST_F(MeasuringTest, AReusedPrefillIsComparedAndResumed) {
  const std::string common = "sweep" + model() + " --file " + text_.string() + " --report " + file("r.html") +
                             " --lengths 1024 --scalings none,linear,yarn --device cpu --reuse-prefill";
  const Outcome outcome = run_lariat(common + " --tail 128 --check 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = data_of(dir_ / "r.html");
  std::set<std::string> columns;
  for (const Json& result : report["results"]) columns.insert(result["scaling"].get<std::string>());
  EXPECT_EQ(columns,
            (std::set<std::string>{"dynamic-yarn", "none reused", "linear reused", "yarn", "yarn reused"}));
  EXPECT_EQ(columns.size(), report["results"].size());
  EXPECT_TRUE(names(outcome.out, "yarn reused | pairs"));
  const auto before = comparable(dir_ / "r.jsonl");
  EXPECT_EQ(run_lariat(common + " --tail 128 --check 1 --resume --quiet").code, 0);
  EXPECT_EQ(comparable(dir_ / "r.jsonl"), before);
  EXPECT_EQ(run_lariat(common + " --tail 64 --check 1 --resume --quiet").code, 0);
  const Json again = data_of(dir_ / "r.html");
  for (const Json& result : again["results"]) EXPECT_EQ(result["tokens"], 8 * 64);  // windows of 8,192 tokens
}

// More columns and lengths are added; fewer select a subset; other settings start again.
TEST_F(MeasuringTest, ASweepIsExtendedAndMerged) {
  const auto sweep = [&](const std::string& name, const std::string& options) {
    const Outcome outcome =
        run_lariat("sweep" + model() + " --file " + text_.string() + " --report " + file(name) +
                   " --depths 1 --trials 1 --no-speed --device cpu --threads 1 --quiet"
                   " --max-tokens 700 " +
                   options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  const auto lines = [&](const char* name) {
    const std::string log = slurp(dir_ / name);
    return std::count(log.begin(), log.end(), '\n');
  };
  sweep("whole.html", "--scalings none,linear,yarn --lengths 256,640");
  const auto whole = comparable(dir_ / "whole.jsonl");
  sweep("part.html", "--scalings none,yarn --lengths 256");
  EXPECT_EQ(lines("part.jsonl"), 1 + 2 + 2 + 2);
  sweep("part.html", "--scalings none,linear,yarn --lengths 256,640 --resume");
  EXPECT_TRUE(comparable(dir_ / "part.jsonl") == whole);
  EXPECT_TRUE(slurp(dir_ / "part.html") == slurp(dir_ / "whole.html"));
  EXPECT_EQ(lines("part.jsonl"), 1 + 2 + 2 + 2 + 1 + 3 + 4 + 4);
  sweep("part.html", "--scalings yarn --lengths 640 --no-growing --resume");
  EXPECT_EQ(data_of(dir_ / "part.html")["results"].size(), 2U);
  sweep("part.html", "--scalings yarn --lengths 640 --no-growing --seed 9 --resume");
  EXPECT_EQ(lines("part.jsonl"), 19 + 1 + 2) << "passkeys of another seed";

  sweep("a.html", "--scalings none,linear --lengths 256,640");
  sweep("b.html", "--scalings yarn --lengths 256,640");
  const std::string merge = "sweep --merge " + file("a.jsonl") + " " + file("b.jsonl");
  EXPECT_EQ(run_lariat(merge + " --report " + file("ab.html")).code, 0);
  EXPECT_TRUE(slurp(dir_ / "ab.html") == slurp(dir_ / "whole.html"));
  expect_error(run_lariat(merge + " " + file("part.jsonl") + " --report " + file("x.html")), 1,
               "part.jsonl | passkey.seed | 9 | 0");
}

TEST_F(MeasuringTest, ShardsMergeToTheReportOfOneProcess) {
  ASSERT_EQ(run_lariat(small_sweep("whole.html")).code, 0);
  const Outcome first = run_lariat(small_sweep("parts.html") + " --shard 0/2");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(names(first.err, "0 | 2 | lariat sweep --merge"));
  const std::string a = file("parts.shard-0-of-2.jsonl"), b = file("parts.shard-1-of-2.jsonl");
  const Outcome half = run_lariat("sweep --merge " + a + " --report " + file("half.html"));
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_NE(half.err, "");
  ASSERT_EQ(run_lariat(small_sweep("parts.html") + " --shard 1/2").code, 0);
  EXPECT_EQ(comparable(a).size() + comparable(b).size(), comparable(dir_ / "whole.jsonl").size());
  EXPECT_EQ(slurp(dir_ / "parts.html"), slurp(dir_ / "whole.html"));  // the last shard wrote it
  ASSERT_EQ(run_lariat("sweep --merge " + a + " " + b + " --report " + file("merged.html")).code, 0);
  EXPECT_EQ(slurp(dir_ / "merged.html"), slurp(dir_ / "whole.html"));
  std::string other = slurp(a);
  put("other.jsonl", other.insert(other.find("\"nll\":") + 6, "1"));
  expect_error(
      run_lariat("sweep --merge " + a + " " + file("other.jsonl") + " " + b + " --report " + file("x.html")),
      1, "other.jsonl | second");
}

// A log truncated anywhere resumes to the same result.
TEST_F(MeasuringTest, PasskeysResumeAfterEachAnsweredPrompt) {
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
  // Prompts answered one by one equal prompts answered together.
  const Json together = json_of(run_lariat(command.substr(0, command.find(" --results"))));
  EXPECT_EQ(together, whole);
  // More trials extend the log; one task is a subset.
  const std::string three = command.substr(0, command.find(" --trials 2")) + " --trials 3";
  EXPECT_EQ(json_of(run_lariat(three + " --results " + file("whole.jsonl") + " --resume")),
            json_of(run_lariat(three)));
  const std::string extended = slurp(dir_ / "whole.jsonl");
  EXPECT_EQ(std::count(extended.begin(), extended.end(), '\n'), 1 + 2 * 2 * 2 * 2 + 1 + 2 * 2 * 2);
  const std::string alone = replace_all(command, "passkey,multivalue", "multivalue");
  const Json one = json_of(run_lariat(alone + file("whole.jsonl") + " --resume"));
  EXPECT_EQ(one["results"], whole["tasks"][1]["results"]);
}

TEST_F(MeasuringTest, LossesResumeAfterEachWindowAndContext) {
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
}

// SIGKILL at ten random moments of one run, resumed each time.
TEST_F(MeasuringTest, KilledRunsResumeToTheSameLog) {
  const std::string common = model() + " --device cpu --threads 1 --quiet --results ";
  const std::string text = " --file " + text_.string();
  std::mt19937 random(5);
  for (const std::string& command :
       {"perplexity --ctx 128,256 --max-tokens 2000" + text + common,
        "passkey --lengths 640,768 --depths 0,1 --trials 3" + common,
        "sweep --report " + file("page.html") +
            " --scalings none,dynamic --lengths 256,640 --depths 0,1 --trials 2 " +
            "--no-speed --max-tokens 1000 --losses " + file("losses") + text + common}) {
    const bool sweep = command.starts_with("sweep");
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(run_lariat(command + file("whole.jsonl")).code, 0);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string losses = sweep ? slurp(dir_ / "losses") : "";
    const std::string resumed = command + file("part.jsonl") + " --resume";
    std::filesystem::remove(dir_ / "part.jsonl");
    std::filesystem::remove(dir_ / "losses");
    std::uniform_real_distribution<double> moment(0, seconds / 2);
    for (int i = 0; i < 10; ++i) {
      const std::string killed = fmt::format("timeout -s KILL {:.3f} {} {} >{} 2>&1", moment(random),
                                             lariat_program(), resumed, file("out"));
      std::system(killed.c_str());
    }
    const Outcome last = run_lariat(resumed);
    EXPECT_EQ(last.code, 0) << last.err;
    EXPECT_EQ(comparable(dir_ / "part.jsonl"), comparable(dir_ / "whole.jsonl")) << command;
    if (sweep) {
      EXPECT_EQ(slurp(dir_ / "losses"), losses);
    }
    EXPECT_FALSE(std::filesystem::exists(part_file(dir_ / "part.jsonl")));
  }
}

TEST_F(MeasuringTest, CsvAndPicturesAreWrittenWithTheReport) {
  const std::string files = " --csv " + file("out.csv") + " --svg " + file("pictures");
  ASSERT_EQ(run_lariat(small_sweep("out.html") + files + " --relative-to none").code, 0);
  const std::string csv = slurp(dir_ / "out.csv");
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "measure,scaling,position_method,stale,length,depth,from,to,value,error,count,factor,model,"
            "weights,dtype,cache_dtype,text,task,than,activations,window_method,stride,step,chat,seed,"
            "trials,low,high,unit,settings,prefill");
  for (const char* measure : {"perplexity", "growing", "passkey"})
    EXPECT_TRUE(holds(csv, "\n" + std::string(measure) + "_difference,dynamic-yarn,")) << measure;
  for (const char* name : {"growing", "perplexity", "growing-ratio", "found-none", "found-dynamic-yarn"})
    EXPECT_EQ(slurp(dir_ / "pictures" / (std::string(name) + ".svg")).rfind("<svg ", 0), 0U) << name;
  ASSERT_EQ(
      run_lariat("passkey" + model() + " --lengths 600 --depths 1 --trials 1 --device cpu" + files).code, 0);
  EXPECT_TRUE(holds(slurp(dir_ / "out.csv"), "\npasskey,none,,false,600,1.0,,,"));
  ASSERT_EQ(run_lariat("perplexity" + model() + " --file " + text_.string() +
                       " --ctx 256 --max-tokens 600 --device cpu --csv " + file("out.csv"))
                .code,
            0);
  EXPECT_TRUE(holds(slurp(dir_ / "out.csv"), "\nperplexity,none,,false,256,,,,"));
  expect_error(run_lariat(small_sweep("out.html") + " --svg " + file("out.csv")), 1, "out.csv");
}

TEST_F(MeasuringErrors, AGrowingContextPrintsItsPositions) {
  const Outcome outcome = run_lariat("perplexity" + model() + " --file " + text_.string() +
                                     " --method growing --ctx 600 --buckets 2 --rope-scaling dynamic-yarn"
                                     " --device cpu --threads 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(names(outcome.out, "0 - 299 | 300 - 599"));
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

// Plan and time estimate of README's sweep.
TEST_F(MeasuringErrors, ASweepSaysItsPlan) {
  const Outcome outcome = run_lariat("sweep" + model() + " --report " + file("x.html") +
                                     " --scalings none,yarn --lengths 512 --no-passkey --device cpu");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(names(outcome.err, "lariat: | 512 | 8192 | 256"));
  EXPECT_TRUE(names(outcome.out, "512"));
  put("short.txt", slurp(text_).substr(0, 3000));
  const Outcome shorter = run_lariat("sweep" + model() + " --report " + file("y.html") + " --file " +
                                     file("short.txt") + " --scalings none --quick --device cpu");
  ASSERT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_TRUE(names(shorter.err, "short.txt | 2048"));
}

TEST_F(MeasuringErrors, ASweepTakesMethodsAndScalings) {
  const Outcome outcome = run_lariat("sweep" + model() + " --report " + file("x.html") + " --svg " +
                                     file("pictures") + " --csv " + file("x.csv") +
                                     " --scalings none,dca,sinks/sinks=4/window=124+yarn,"
                                     "jet-long-freq/far=bands/factors=1,4 --lengths 640"
                                     " --max-tokens 700 --depths 0.5 --trials 1 --no-speed --device cpu");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(names(outcome.err, "dca | dca/chunk=384/window=128"));
  EXPECT_TRUE(names(outcome.out, "sinks/sinks=4/window=124+yarn | 1.25 | dca | 512"));
  const Json methods = data_of(dir_ / "x.html")["sweep"]["methods"];
  EXPECT_EQ(methods["dca"], "dca/chunk=384/window=128");
  EXPECT_EQ(methods["jet-long-freq/far=bands/factors=1,4"], "jet-long-freq/window=32/far=bands/factors=1,4");
  EXPECT_TRUE(holds(slurp(dir_ / "x.csv"), "\nperplexity,yarn,sinks/sinks=4/window=124,false,640,"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "pictures/found-dca.svg"));
}

TEST(Meters, PrintLinesWithoutATerminal) {
  testing::internal::CaptureStderr();
  Meter meter("sweep", false, 0), quiet("sweep", true, 0), rare("sweep", false);
  meter.show(0.25, "2 of 8 measured  ");
  quiet.show(0.5, "");
  rare.show(0.5, "");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(names(said, "lariat: sweep | 25 % | 2 of 8 measured"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  testing::internal::CaptureStderr();
  Meter nearly("sweep", false, 0);
  nearly.show(0.9999, "");
  EXPECT_TRUE(names(testing::internal::GetCapturedStderr(), "99 %"));
  EXPECT_EQ(duration(59.2), "1:00");
  EXPECT_EQ(duration(3723), "1:02:03");
}

TEST_F(MeasuringErrors, AShortHaystackIsRepeatedWithAWarning) {
  put("short.txt", "It was a short story.");
  const Outcome outcome =
      run_lariat("passkey" + model() + " --device cpu --lengths 600 --depths 1 --trials 1" + " --haystack " +
                 file("short.txt"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(names(outcome.err, "short.txt | 600"));
}

}  // namespace
}  // namespace lariat::test
