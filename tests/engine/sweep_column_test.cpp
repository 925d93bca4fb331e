#include "engine/eval/measurement.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "engine/eval/render/report.h"
#include "engine/eval/render/results_csv.h"
#include "engine/eval/render/sweep_svg.h"
#include "engine/eval/verdict.h"
#include "models/positions/parse_position_method.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

struct Parts {
  std::string text, scaling, method;
  bool stale;
  std::string name;
};

TEST(SweepColumns, HaveOneSpelling) {
  const std::vector<Parts> all = {
      {"yarn", "yarn", "", false, "yarn"},
      {"YaRN", "yarn", "", false, "yarn"},
      {"yarn/factor=1", "yarn", "", false, "yarn/factor=1"},
      {"yarn/factor=1e6", "yarn", "", false, "yarn/factor=1000000"},
      {"default", "none", "", false, "none"},
      {"model", "model", "", false, "model"},
      {"dca", "none", "dca", false, "dca"},
      {"dca+none", "none", "dca", false, "dca"},
      {"yarn+dca", "yarn", "dca", false, "dca+yarn"},
      {"dca/chunk=6144/window=2048+YARN", "yarn", "dca/chunk=6144/window=2048", false,
       "dca/chunk=6144/window=2048+yarn"},
      {"string+model", "model", "string", false, "string+model"},
      {"dynamic-yarn stale", "dynamic-yarn", "", true, "dynamic-yarn stale"},
      {"dynamic+sinks/sinks=1 stale", "dynamic", "sinks/sinks=1", true, "sinks/sinks=1+dynamic stale"}};
  for (const Parts& parts : all) {
    SCOPED_TRACE(parts.text);
    for (const std::string& text : {parts.text, parts.name}) {
      const Column column = parse_column(text);
      EXPECT_EQ(column.scaling, parts.scaling);
      EXPECT_EQ(column.method, parts.method);
      EXPECT_EQ(column.stale, parts.stale);
      EXPECT_EQ(column.name(), parts.name);
    }
  }
  for (const std::string text : {"yarm", "dynamic2", "", "stale", " stale", "dca+", "+dca", "dca+string",
                                 "yarn+linear", "dca+yarn+yarn", "dcaa", "yarn/chunk=9"}) {
    const std::string error = error_of([&] { parse_column(text); });
    EXPECT_TRUE(names(error, "`scalings` " + text +
                                 " | none, linear, | dynamic-yarn | dca, string, sinks, | METHOD+SCALING"));
  }
  for (const std::string text : {"</svg>\x01+dca", "", "multikey", "a stale stale", "dca/\",\n"}) {
    const Column column = text;
    EXPECT_EQ(Column(column.name()), column);
  }
}

class MethodSweep : public SmallSweep {
 protected:
  MethodSweep() : SmallSweep(256, fox_lines(60)) {
    options_.lengths = {256, 512};
    options_.max_tokens = 512;
    options_.growing_step = 64;
    options_.passkeys.depths = {0.5};
    options_.passkeys.trials = 1;
  }
};

TEST_F(MethodSweep, MeasuresMethodsAloneAndWithScalings) {
  options_.scalings = {"none",           "dynamic",         "dca",     "dca/window=64/chunk=192",
                       "string+dynamic", "sinks/window=60", "dca+yarn"};
  Schedule sweep(engine_, options_);
  EXPECT_EQ(sweep.notes(),
            (std::vector<std::string>{
                "dca is dca/chunk=192/window=64", "dca/window=64/chunk=192 is dca/chunk=192/window=64",
                "string is string/shift=256/window=128", "sinks/window=60 is sinks/sinks=4/window=60"}));
  const Measurements log = run("a.jsonl");
  EXPECT_TRUE(log.complete());
  EXPECT_EQ(log.plan.methods["string"], "string/shift=256/window=128");
  const std::vector<Column> columns = log.plan.growing.columns;
  EXPECT_EQ(columns,
            (std::vector<Column>{"none", "dynamic", "dynamic stale", "dca", "dca/window=64/chunk=192",
                                 "string+dynamic", "string+dynamic stale", "sinks/window=60", "dca+yarn"}));
  const auto nll = [&](const char* kind, const char* column, int64_t length = 512) {
    return find_record(log, kind, column, length)["nll"].get<double>();
  };
  // Each column equals its perplexity run.
  for (const auto& [column, method, type] : {std::tuple("dca", "dca", RopeType::kDefault),
                                             {"dca+yarn", "dca", RopeType::kYarn},
                                             {"sinks/window=60", "sinks/window=60", RopeType::kDefault}}) {
    SessionOptions session = engine_.session_for(sweep.scaling_for(column, 512));
    EXPECT_EQ(session.rope->type, type);
    session.positions = parse_position_method(method, 256, 512);
    Session one(engine_.model, *engine_.backend, session);
    PerplexityOptions perplexity{.ctx = {512}, .stride = 256, .bos = text_bos(*engine_.tokenizer)};
    const auto results = measure_perplexity(one, *sweep.text(), perplexity, {});
    EXPECT_NEAR(results.front().nll / nll("perplexity", column), 1, 1e-9) << column;
  }
  EXPECT_TRUE(find_record(log, "perplexity", "dca", 512).contains("timing"));
  EXPECT_FALSE(find_record(log, "perplexity", "dca/window=64/chunk=192", 512).contains("timing"));
  EXPECT_EQ(nll("growing", "dca"), nll("growing", "dca/window=64/chunk=192"));
  // dca keeps the trained distances of a short text.
  EXPECT_NEAR(nll("perplexity", "dca", 256) / nll("perplexity", "none", 256), 1, 1e-5);
  for (const char* kind : {"growing", "perplexity"}) {
    std::set<double> values;
    for (const char* column : {"none", "dynamic", "dca", "string+dynamic", "sinks/window=60", "dca+yarn"})
      values.insert(nll(kind, column));
    EXPECT_EQ(values.size(), 6U) << kind;
  }
  EXPECT_NE(nll("growing", "string+dynamic stale"), nll("growing", "string+dynamic"));
  EXPECT_TRUE(std::ranges::equal(run("a.jsonl").records, log.records, same_result)) << "all are reused";
}

// A window equals a context grown to its length if the group has a fixed size.
TEST_F(MethodSweep, ReusesResultsIndependentOfTheLength) {
  options_.scalings = {"self-extend/group=3/window=60", "self-extend/group=auto/window=60"};
  options_.lengths = {512};
  options_.quick = true;
  options_.max_tokens.reset();
  options_.growing_step = SweepOptions().growing_step;
  const Measurements both = run("both.jsonl");
  options_.growing = false;
  const Measurements alone = run("alone.jsonl");
  for (const std::string& column : options_.scalings) {
    const Json taken = find_record(both, "perplexity", column, 512),
               measured = find_record(alone, "perplexity", column, 512);
    EXPECT_EQ(taken.contains("timing"), column == options_.scalings[1]) << column;
    EXPECT_EQ(taken["blocks"], measured["blocks"]) << column;
  }
}

// yarn/factor=2 is yarn at the length that gives this factor, at every length; a dynamic scale ends there.
TEST_F(MethodSweep, AFactorBelongsToAColumn) {
  options_.scalings = {"yarn", "yarn/factor=2", "yarn/factor=4", "dynamic-yarn", "dynamic-yarn/factor=1.5"};
  Schedule sweep(engine_, options_);
  EXPECT_EQ(sweep.scaling_for("yarn/factor=4", 256).factor, 4);
  EXPECT_EQ(sweep.scaling_for("yarn", 512).factor, 2);
  const Measurements log = run("a.jsonl");
  const auto nll = [&](const char* column) {
    return find_record(log, "perplexity", column, 512)["nll"].get<double>();
  };
  EXPECT_EQ(nll("yarn/factor=2"), nll("yarn"));
  EXPECT_NE(nll("yarn/factor=4"), nll("yarn"));
  EXPECT_NE(nll("dynamic-yarn/factor=1.5"), nll("dynamic-yarn"));
  const SweepTable table = tabulate(log);
  EXPECT_EQ(colour_of(table, "yarn"), "of-yarn");
  EXPECT_NE(colour_of(table, "yarn/factor=2"), colour_of(table, "yarn/factor=4"));
  EXPECT_EQ(table.growing.at("yarn/factor=4").label, "yarn/factor=4");
  const auto rows = csv_rows(csv_of(log));
  EXPECT_EQ(rows.at(0).at("scaling") + rows.at(0).at("factor"), "yarn2.0");
  EXPECT_EQ(Column("dca+yarn/factor=2.5").name(), "dca+yarn/factor=2.5");
  EXPECT_EQ(Column("dynamic-yarn/factor=3 stale").factor, 3);
  for (const char* wrong : {"yarn/factor=0.5", "yarn/factor=nan", "yarn/factor=", "yarn/factor=2x",
                            "yarn/factor=2e6", "none/factor=2", "yarn/fact=2"})
    EXPECT_TRUE(names(error_of([&] { parse_column(wrong); }), std::string(wrong) + " | factor")) << wrong;
}

TEST_F(MethodSweep, StaleColumnsAreAChoice) {
  options_.scalings = {"none", "dynamic", "dynamic-yarn stale"};
  options_.stale_too = false;
  EXPECT_EQ(Schedule(engine_, options_).plan().growing.columns,
            (std::vector<Column>{"none", "dynamic", "dynamic-yarn stale"}));
}

TEST_F(MethodSweep, AskedPositionsEndBuckets) {
  options_.scalings = {"none"};
  options_.lengths = {500};
  options_.ends = {77, 300, 9000};
  const Measurements log = run("a.jsonl");
  const auto& positions = log.records.at(0).loss()->positions;
  for (const int64_t end : {int64_t{77}, log.plan.original_ctx, int64_t{300}, int64_t{500}})
    EXPECT_EQ(std::ranges::count(positions, end, &PositionLoss::to), 1) << end;
  for (size_t i = 1; i < positions.size(); ++i) EXPECT_EQ(positions[i].from, positions[i - 1].to);
}

TEST_F(MethodSweep, TablesPicturesAndSentencesKnowTheColumns) {
  options_.scalings = {"none", "yarn", "dca+dynamic", "sinks/window=60"};
  const Measurements log = run("a.jsonl");
  const SweepTable table = tabulate(log);
  const std::string csv = csv_of(log);
  EXPECT_TRUE(holds(csv, "\nperplexity,none,sinks/sinks=4/window=60,false,512,"));
  EXPECT_TRUE(holds(csv, "\ngrowing,dynamic,dca/chunk=192/window=64,true,512,"));
  EXPECT_TRUE(holds(csv, "\ncache_bytes,dynamic,dca/chunk=192/window=64,false,256,"));
  EXPECT_EQ(colour_of(table, "yarn"), "of-yarn");
  EXPECT_EQ(colour_of(table, "dca+dynamic"), "of-ntk");
  EXPECT_EQ(colour_of(table, "dca+dynamic stale"), "of-ntk");
  EXPECT_EQ(colour_of(table, "sinks/window=60"), "of-linear");
  std::vector<std::string> pictures;
  for (const SweepPicture& picture : sweep_pictures(table)) pictures.push_back(picture.name);
  EXPECT_EQ(pictures, (std::vector<std::string>{"growing", "perplexity", "found-none", "found-yarn",
                                                "found-dca+dynamic", "found-3"}));
  const std::string narrow = sweep_pictures(table).front().narrow;
  EXPECT_TRUE(names(narrow, ">sinks<") && names(narrow, ">dca+dynamic<") && names(narrow, ">stale<"));
  std::string sentences;
  for (const std::string& sentence : conclusions(table)) sentences += sentence + "\n";
  EXPECT_TRUE(names(sentences, "512 | 256 | dca+dynamic"));
}

TEST_F(MethodSweep, InvalidColumnsAreOneLine) {
  const auto refused = [&](std::vector<std::string> columns) {
    options_.scalings = std::move(columns);
    return error_of([&] { Schedule(engine_, options_).check(); });
  };
  EXPECT_EQ(refused({"dynamic stale", "dca+dynamic-yarn stale", "dca"}), "");
  for (const char* column : {"dca stale", "yarn stale", "none stale", "dca+yarn stale"})
    EXPECT_TRUE(names(refused({column}), "`scalings` " + std::string(column)));
  EXPECT_TRUE(names(refused({"dca/chunk=0"}), "`scalings` dca/chunk=0 | chunk=N"));
  EXPECT_TRUE(names(refused({"dca/window=9/chunk=3+yarn"}), "`scalings` dca/chunk=3/window=9"));
  EXPECT_TRUE(names(refused({"yarm"}), "`scalings` yarm"));
  engine_.model.spec.layers[0].attention.sliding_window = 64;
  EXPECT_TRUE(names(refused({"none", "dca"}), "dca"));
  EXPECT_EQ(refused({"none", "yarn"}), "");
}

// Measures everything, so that its JSON has every setting.
Plan full_plan() {
  Plan plan = empty_log({"yarn+dca"}, {256, 512}).plan;
  plan.text = {"text.txt", 9, "f"};
  plan.growing = {true, 64, {"yarn+dca"}};
  plan.perplexity = {true, "sliding", 64, 8, 2, 900, 4, {{128, 256}}};
  plan.passkey = {true, {0, 1}, 5, 7, NeedleTask::kPasskey, 4, {"hay", 5, "h"}, false, {{{"a", 1}}}, {}};
  plan.options = {"cpu", "q8", "f32", "f16", "bf16", 16, 2, 2, 4, 4, "f", true};
  plan.against = {{"base", "f", "t"}, "none", plan.options};
  plan.rows = {"all", true, false, 8, Json{{"a", 1}}};
  plan.methods = {{"dca", "dca/chunk=64"}};
  return plan;
}

// A changed setting changes the identity of the records that depend on it, and of no other record.
TEST(MeasurementLogs, ARecordDependsOnItsOwnSettings) {
  const Plan plan = full_plan();
  const auto record = [](auto value) { return Record{"yarn+dca", 512, std::move(value)}; };
  const std::map<std::string, Record> records{
      {"growing", record(Growing())},
      {"passkey", record(Retrieval{.depth = 1})},
      {"trial", record(Retrieval{.depth = 1, .task = NeedleTask::kPasskey, .trial = 3})},
      {"perplexity", record(Loss())},
      {"speed", record(Speed())},
      {"windows saved", record(LossPart{.of = Kind::kPerplexity})},
      {"growing saved", record(LossPart{.of = Kind::kGrowing})},
      {"divergence", record(Divergence())},
      {"answer", record(RowAnswer())}};
  const std::string none = "none", all = "[a-z ]*",
                    windows = "perplexity|windows saved|growing saved|divergence";
  const std::vector<std::pair<std::string, std::string>> rules{
      {"/(model|text|shard|scalings)\\b.*|.*/columns\\b.*", none},
      {"/lengths.*", "windows saved|growing saved"},
      {"/(options|original_ctx|methods)\\b.*", all},
      {"/growing/.*", "growing|growing saved"},
      {"/perplexity/max_tokens", windows + "|growing"},
      {"/perplexity/.*", windows},
      {"/passkey/(trials|task)", "passkey"},
      {"/passkey/depths/.", none},
      {"/passkey/.*", "passkey|trial"},
      {"/rows/metric", none},
      {"/rows/.*", "answer"},
      {"/against/.*", "divergence"}};
  const Json plain = to_json(plan), flat = plain.flatten();
  for (const auto& [name, value] : flat.items()) {
    if (name == "/lariat_sweep" || name.ends_with("/measured")) continue;
    const Plan with = plan_from_json(changed_setting(plain, name), "a test");
    const auto rule = std::ranges::find_if(
        rules, [&, &of = name](const auto& one) { return std::regex_match(of, std::regex(one.first)); });
    ASSERT_NE(rule, rules.end()) << name;
    for (const auto& [kind, of] : records)
      EXPECT_EQ(plan.identity(of) != with.identity(of), std::regex_match(kind, std::regex(rule->second)))
          << name << " and " << kind;
  }
}

TEST(MeasurementLogs, JoinedPlansMeasureBoth) {
  Plan full = full_plan(), bare{.columns = {"none"}, .lengths = {1024, 256}};
  full.passkey.tasks = {NeedleTask::kPasskey};
  bare.passkey.depths = {0.25};  // of nothing measured
  bare.passkey.tasks = {NeedleTask::kMultikey};
  const auto joined = [](Plan plan, const Plan& other) {
    plan.join(other);
    return plan;
  };
  Plan expected = full;
  expected.lengths = {256, 512, 1024};
  expected.columns = {"yarn+dca", "none"};
  EXPECT_EQ(to_json(joined(full, bare)), to_json(expected));
  std::ranges::swap(expected.columns[0], expected.columns[1]);
  bare.model = full.model;
  bare.original_ctx = full.original_ctx;
  bare.options = full.options;
  bare.shard = full.shard;
  EXPECT_EQ(to_json(joined(bare, full)), to_json(expected));

  Plan other = full;
  other.text->name = other.against->model.name = "other";
  other.growing = {true, 8, {"none"}};
  other.perplexity.stride = 3;
  other.passkey.depths = {0.5, 0};
  other.passkey.tasks = {NeedleTask::kPasskey, NeedleTask::kMultikey};
  other.speed.measured = false;
  other.methods = {{"string", "s"}};
  expected = full;
  expected.growing.columns = {"yarn+dca", "none"};
  expected.passkey.depths = {0, 0.5, 1};
  expected.passkey.tasks = {NeedleTask::kPasskey, NeedleTask::kMultikey};
  expected.methods["string"] = "s";
  EXPECT_EQ(to_json(joined(full, other)), to_json(expected));
}

TEST(MeasurementLogs, LabelsAreTheSettingsOfTheRecord) {
  Plan plan = full_plan();
  plan.passkey.trials = 9;
  const auto of = [&](auto value, const char* column = "yarn+dca") {
    return labels_of(plan, {column, 512, std::move(value)});
  };
  const Labels found = of(Retrieval{.depth = 1});
  EXPECT_EQ(found.text, "hay");
  EXPECT_EQ(found.task, NeedleTask::kPasskey);
  EXPECT_EQ(found.chat, false);
  EXPECT_EQ(found.seed, 7U);
  EXPECT_EQ(found.trials, 9);
  EXPECT_FALSE(found.window_method || found.stride || found.step);
  const Json labels = to_json(found);
  EXPECT_EQ(labels["activations"], 16);
  EXPECT_EQ(labels["seed"], 7);
  EXPECT_EQ(labels["settings"], found.settings);
  plan.passkey.chat = true;
  EXPECT_EQ(of(Retrieval{.task = NeedleTask::kMultikey}).chat, true);
  EXPECT_EQ(of(Retrieval{.task = NeedleTask::kMultikey}).task, NeedleTask::kMultikey);
  plan.passkey.chat = {};
  EXPECT_EQ(of(Retrieval()).chat, false);

  const Labels windows = of(Loss()), found_again = of(Retrieval{.depth = 1});
  EXPECT_EQ(windows.text, "text.txt");
  EXPECT_EQ(windows.window_method, "sliding");
  EXPECT_EQ(windows.stride, 64);
  EXPECT_EQ(to_json(windows)["window_method"], "sliding");
  EXPECT_FALSE(windows.step || windows.task || windows.chat || windows.seed || windows.trials);
  EXPECT_EQ(of(Loss{.stride = 5}).stride, 5);
  EXPECT_EQ(of(Divergence()).window_method, "sliding");
  EXPECT_FALSE(of(Divergence()).step);
  EXPECT_FALSE(of(Speed()).window_method);
  for (const int64_t stride : {0, 1}) {
    plan.perplexity.stride = stride;
    EXPECT_EQ(of(Loss()).stride.value_or(0), stride);
    EXPECT_EQ(of(Loss()).stride.has_value(), stride > 0);
  }
  plan.text->fingerprint = "other";
  EXPECT_NE(of(Loss()).settings, windows.settings);
  EXPECT_EQ(of(Retrieval{.depth = 1}).settings, found_again.settings);
  Growing growing;
  growing.factor = 5;
  EXPECT_EQ(of(growing).window_method, "growing");
  EXPECT_EQ(of(growing).step, 64);
  EXPECT_FALSE(of(growing).stride);
  plan.growing.measured = false;
  EXPECT_EQ(of(growing).step, 8);
  plan.perplexity.method = "anchored";
  EXPECT_EQ(of(Loss()).step, 8);
  EXPECT_FALSE(of(Loss()).stride);
  plan.perplexity.method = "growing";
  EXPECT_EQ(of(Divergence()).step, 8);

  EXPECT_EQ(labels_of(plan, {"yarn", 512, growing, 3}).rope_factor, 3);
  EXPECT_EQ(of(growing).rope_factor, 5);
  EXPECT_EQ(of(Growing()).rope_factor, 2);
  EXPECT_EQ(of(Loss()).rope_factor, 2);
  EXPECT_FALSE(of(Loss(), "dca").rope_factor);
  plan.options.frequencies = {};
  EXPECT_FALSE(of(Loss()).rope_factor);
  EXPECT_TRUE(of(Loss()).stale);
  plan.options.stale_cache = false;
  EXPECT_FALSE(of(Loss()).stale);
  EXPECT_TRUE(of(Loss(), "dynamic stale").stale);
  plan.text.reset();
  EXPECT_FALSE(of(Divergence()).text);
}

TEST_F(MethodSweep, TimeIsEstimatedByVisibleKeys) {
  options_.lengths = {512};
  const auto seconds = [&](const char* column) {
    options_.scalings = {column};
    Schedule sweep(engine_, options_);
    return sweep.seconds_left({sweep.plan()}, {.token = 0, .pair = 1, .step = 0}).at(Kind::kPerplexity);
  };
  EXPECT_DOUBLE_EQ(seconds("dca"), seconds("none"));
  EXPECT_NEAR(seconds("sinks/window=60") / seconds("none"), 64.0 / 257, 1e-9);
}

}  // namespace
}  // namespace lariat::test
