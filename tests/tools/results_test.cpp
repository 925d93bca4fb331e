#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/tools/measuring_program.h"

namespace lariat::test {
namespace {

TEST_F(MeasuringErrors, EveryRowOfAPasskeyRunNamesItsSetting) {
  const Json found = json_of(
      run_lariat("passkey" + model() +
                 " --device cpu --json --lengths 600 --depths 1 --trials 1 --task passkey,multikey"
                 " --rope-scaling yarn --rope-factor 2 --position-method dca/chunk=384/window=128 --report " +
                 file("out.html") + " --csv " + file("out.csv")));
  const Json report = data_of(dir_ / "out.html");
  EXPECT_EQ(report["sweep"]["scalings"], Json({"dca/chunk=384/window=128+yarn"}));
  EXPECT_EQ(report["sweep"]["passkey"]["tasks"], Json({"passkey", "multikey"}));
  for (size_t i = 0; i < 2; ++i) {
    for (const Json& row : {found["tasks"][i]["results"][0], report["results"][1 - i]}) {
      EXPECT_EQ(row["task"], i == 0 ? "passkey" : "multikey");
      EXPECT_EQ(row["model"], "demo");
      EXPECT_EQ(row["weights"], "BF16");
      EXPECT_EQ(row["dtype"], "bf16");
      EXPECT_EQ(row["cache_dtype"], "k=f16 v=bf16");
      EXPECT_EQ(row["rope_scaling"], "yarn");
      EXPECT_EQ(row["rope_factor"], 2.0);
      EXPECT_EQ(row["position_method"], "dca/chunk=384/window=128");
      EXPECT_EQ(row["stale"], false);
      EXPECT_EQ(row["text"], "noise");
    }
  }
  EXPECT_TRUE(holds(slurp(dir_ / "out.csv"), "\nmultikey,yarn,dca/chunk=384/window=128,false,600,1.0,"));
  EXPECT_TRUE(holds(slurp(dir_ / "out.csv"), ",2.0,demo,BF16,bf16,k=f16 v=bf16,noise,multikey,,"));
}

// Only earlier logs are renamed; a link stays a link.
TEST_F(MeasuringErrors, ResultsNeverReplaceOtherFiles) {
  namespace fs = std::filesystem;
  const std::string sweep = "sweep" + model() +
                            " --scalings none --lengths 64 --max-tokens 100 --no-growing"
                            " --no-passkey --no-speed --device cpu --quiet --report " +
                            file("notes.html");
  put("notes.jsonl", "mine");
  for (int i = 0; i < 2; ++i) expect_error(run_lariat(sweep), 1, "notes.jsonl: ");
  EXPECT_EQ(slurp(dir_ / "notes.jsonl"), "mine");
  put("r.jsonl.part", "mine");
  fs::create_symlink("r.jsonl", dir_ / "link");
  const std::string linked = sweep + " --results " + file("link");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run_lariat(linked).code, 0);
  put("link.part", "mine");
  EXPECT_EQ(run_lariat(linked).code, 0);
  EXPECT_EQ(slurp(dir_ / "link.part"), "mine");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(comparable(dir_ / "r.jsonl"), comparable(dir_ / "r.jsonl.old"));
  put("r.jsonl.old", "mine");
  expect_error(run_lariat(linked), 1, "r.jsonl.old: ");
  EXPECT_EQ(slurp(dir_ / "r.jsonl.old"), "mine");
  EXPECT_EQ(comparable(dir_ / "r.jsonl").size(), 1U);
  const std::string perplexity = "perplexity" + model() + " --file " + text_.string() +
                                 " -c 64 --max-tokens 100 --device cpu --quiet --results ";
  expect_error(run_lariat(perplexity + file("notes.jsonl")), 1, "notes.jsonl: ");
  EXPECT_EQ(slurp(dir_ / "notes.jsonl"), "mine");
  if (::mknod(file("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    LARIAT_SKIP("devices cannot be made here");
  EXPECT_EQ(run_lariat(perplexity + file("null")).code, 0);
  EXPECT_TRUE(fs::is_character_file(dir_ / "null"));
  expect_error(run_lariat(perplexity + file("null") + " --resume"), 1, "null: ");
}

TEST_F(MeasuringErrors, PandasReadsTheCsv) {
  std::string python;
  for (const char* one : {"/usr/bin/python3", "python3"}) {  // packages install for the first
    if (std::system(fmt::format("{} -c 'import pandas, matplotlib' 2>/dev/null", one).c_str()) == 0)
      python = one;
  }
  if (python.empty()) LARIAT_SKIP("python3-pandas or python3-matplotlib is missing");
  Json expected;
  for (const std::string scaling : {"yarn", "dynamic"}) {
    const std::string command = "perplexity" + model() + " --file " + text_.string() +
                                " -c 600,700 --max-tokens 800" +
                                " --device cpu --json --rope-factor 2 --rope-scaling " + scaling + " --csv ";
    expected = json_of(run_lariat(command + file(scaling + ".csv")))["results"];
  }
  put("plot.py", slurp(kSource / "examples" / "error_bars.py") +
                     "print(float(ppl.value['dynamic'][700]), len(ppl.value.columns))\n");
  const std::string run = fmt::format("cd {} && MPLBACKEND=Agg MPLCONFIGDIR={} {} plot.py >out 2>err",
                                      dir_.string(), dir_.string(), python);
  ASSERT_EQ(std::system(run.c_str()), 0) << slurp(dir_ / "err");
  std::istringstream out(slurp(dir_ / "out"));
  double ppl = 0;
  int columns = 0;
  out >> ppl >> columns;
  EXPECT_NEAR(ppl, expected[1]["ppl"].get<double>(), 1e-12);  // pandas may miss the last digit
  EXPECT_EQ(columns, 2);
  EXPECT_GT(std::filesystem::file_size(dir_ / "perplexity.png"), 1000U);
}

TEST_F(MeasuringErrors, LongPplIsOverKeyTokens) {
  if (std::system("python3 -c pass 2>/dev/null") != 0) LARIAT_SKIP("python3 is missing");
  const auto losses = [&](const std::string& name, const std::string& options) {
    EXPECT_EQ(run_lariat("perplexity" + model() + " --file " + text_.string() + " --max-tokens 800" +
                         options + " --device cpu --quiet --losses " + file(name))
                  .code,
              0);
    const std::string lines = slurp(dir_ / name);
    return Json::parse(lines.substr(0, lines.find('\n')))["losses"];
  };
  const Json near = losses("short", " -c 96 --stride 32"), chosen = losses("a", " -c 600 --method growing"),
             judged = losses("b", " -c 500 --method growing --rope-scaling yarn --rope-factor 2");
  double sum[2] = {};
  int keys = 0, of = 0;
  for (size_t i = 64; i < near.size(); ++i) {
    if (near[i].is_null() || chosen[i].is_null() || judged[i].is_null()) continue;
    ++of;
    if (near[i].get<double>() - chosen[i].get<double>() <= 0.25 || chosen[i].get<double>() >= 1.5) continue;
    ++keys;
    sum[0] += chosen[i].get<double>(), sum[1] += judged[i].get<double>();
  }
  ASSERT_TRUE(keys > 3 && keys < of && of < 500) << keys << " of " << of;
  const std::string python =
      fmt::format("cd {} && python3 {} short a b --alpha 0.25 --beta -1.5 --trunc 64 >out", dir_.string(),
                  (kSource / "examples" / "long_ppl.py").string());
  ASSERT_EQ(std::system(python.c_str()), 0);
  EXPECT_EQ(slurp(dir_ / "out"), fmt::format("{} key tokens of {}, chosen by a\na: {:.4f}\nb: {:.4f}\n", keys,
                                             of, std::exp(sum[0] / keys), std::exp(sum[1] / keys)));
}

TEST_F(MeasuringErrors, ARequestedFileIsWrittenOrRefused) {
  const std::string sweep = "sweep" + model() + " --report " + file("x.html") + " --device cpu ";
  const std::string out = file("out");
  for (const auto& [command, option] : std::vector<std::pair<std::string, std::string>>{
           {"sweep --report " + file("x.html") + " --merge x.jsonl --losses " + out, "--losses"},
           {"sweep --report " + file("x.html") + " --merge x.jsonl --results " + out, "--results"},
           {sweep + "--no-perplexity --no-growing --losses " + out, "--losses"},
           {sweep + "--shard 0/2 --results " + file("x.jsonl") + " --csv " + out, "--csv"}}) {
    expect_error(run_lariat(command), 2, option);
    EXPECT_FALSE(std::filesystem::exists(out)) << command;
  }
}

}  // namespace
}  // namespace lariat::test
