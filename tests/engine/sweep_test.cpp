#include "engine/eval/measure/sweep.h"

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "engine/eval/measure/windows.h"
#include "engine/eval/render/report.h"
#include "engine/eval/sweep_table.h"
#include "engine/stopwatch.h"
#include "models/text/unicode.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

class SweepTest : public SmallSweep {
 protected:
  SweepTest() : SmallSweep(512, std::string(40, 'x') + " one two three. " + fox_lines(400)) {
    options_.scalings = {"none", "linear", "dynamic", "yarn"};
    options_.lengths = {512, 640};
    options_.max_tokens = 800;
    options_.passkeys.depths = {0, 1};
    options_.passkeys.trials = 2;
    options_.speed = false;
  }
  Schedule sweep() { return Schedule(engine_, options_); }
};

TEST_F(SweepTest, ALogIdentifiesModelAndTexts) {
  std::filesystem::copy(checkpoint_dir("llama_gqa"), dir_ / "model");
  const auto before = model_identity(open_f32(dir_ / "model", *engine_.backend));
  EXPECT_EQ(before.name, "model");
  put("model/tokenizer_config.json", R"({"add_bos_token": false})");
  const auto after = model_identity(open_f32(dir_ / "model", *engine_.backend));
  EXPECT_EQ(after.fingerprint, before.fingerprint);
  EXPECT_NE(after.texts, before.texts);
  const auto gguf = source_dir() / "tests/golden/gguf/llama_gqa.gguf";
  const Engine of_gguf = Engine::open(gguf, {.reads = Reads::kTokens, .device = "cpu"});
  EXPECT_EQ(model_identity(of_gguf.model).name, "llama_gqa.gguf");
}

TEST_F(SweepTest, AGrowingContextIsMeasuredToTheLongestWithAndWithoutStaleKeys) {
  options_.perplexity = options_.passkey = false;
  const Measurements log = run("a.jsonl");
  const std::vector<Column> columns = {"none", "linear", "dynamic", "dynamic stale", "yarn"};
  EXPECT_EQ(log.plan.growing.columns, columns);
  const SweepTable table = tabulate(log);
  EXPECT_EQ(table.growing_columns, columns);
  EXPECT_EQ(table.growing.at("yarn").label, "yarn ×1.25");
  EXPECT_EQ(table.growing.at("dynamic stale").label, "dynamic stale");
  int64_t at = 0;
  for (const auto& bucket : table.growing.at("dynamic").positions) {
    EXPECT_EQ(bucket.from, at);
    at = bucket.to;
  }
  EXPECT_EQ(at, 640);
  const auto ranges = growing_ranges(table);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].to, 512);  // the original length
  // The scale is 1 up to the original length: no key is stale.
  const PositionRange before = ranges[0], after = ranges[1];
  const auto ppl = [&](const char* column, const PositionRange& range) {
    return growing_sum(table, column, range).value().ppl();
  };
  for (const char* column : {"dynamic", "dynamic stale"}) EXPECT_EQ(ppl(column, before), ppl("none", before));
  EXPECT_NE(ppl("dynamic stale", after), ppl("dynamic", after));

  // Without fresh caches there are no second columns.
  options_.scalings = {"dynamic"};
  engine_.session_options.stale_cache = true;
  const Measurements stale = run("stale.jsonl");
  ASSERT_EQ(stale.records.size(), 1U);
  EXPECT_EQ(stale.records[0].column, Column("dynamic"));
  EXPECT_EQ(stale.records[0].loss()->nll, find_record(log, "growing", "dynamic stale")["nll"]);
}

// Up to the original length, columns are equal: only stale columns are measured again.
TEST_F(SweepTest, EqualGrowingContextsAreTakenOver) {
  options_.perplexity = options_.passkey = false;
  options_.lengths = {512};
  const Measurements log = run("a.jsonl");
  std::vector<Column> measured;
  for (const auto& record : log.records) {
    if (record.timing) measured.push_back(record.column);
    EXPECT_EQ(record.loss()->nll, log.records[0].loss()->nll);
  }
  EXPECT_EQ(log.records.size(), 5U);
  EXPECT_EQ(measured, (std::vector<Column>{"none", "dynamic stale"}));
}

// With a static scaling a window equals a context grown to its length.
TEST_F(SweepTest, AContextOfOneWindowIsReadOnce) {
  options_.lengths = {640};
  options_.scalings = {"none", "dynamic", "yarn"};
  options_.max_tokens.reset();
  options_.quick = true;
  const Schedule quick = sweep();
  EXPECT_EQ(quick.units().size(), 4U + 3U);
  EXPECT_EQ(quick.stride_of(640), 320);
  const Measurements both = run("both.jsonl");
  options_.growing = false;
  const Measurements alone = run("alone.jsonl");
  for (const auto& record : alone.records) {
    const Record same = record_from_json(find_record(both, "perplexity", record.column.name()), "");
    EXPECT_TRUE(same_result(same, record));
    EXPECT_EQ(same.timing.has_value(), record.column == Column("dynamic"));
    EXPECT_EQ(record.loss()->blocks.size(), 512U);
  }
}

TEST_F(SweepTest, GivesTheLossOfEachToken) {
  options_.passkey = false;
  std::map<std::string, Json> lines;
  options_.on_losses = [&](const Json& line) {
    lines[std::string(line["kind"]) + "/" + std::string(line["scaling"]) + "/" + line["length"].dump()] =
        line;
  };
  const Measurements log = run("a.jsonl");
  ASSERT_EQ(lines.size(), log.records.size());
  for (const auto& record : log.records) {
    const Json& line = lines.at(record.key());
    if (!record.timing) {
      EXPECT_EQ(line["same_as"]["length"], record.length);
      continue;
    }
    double sum = 0;
    int64_t scored = 0;
    for (const auto& loss : line["losses"]) {
      scored += loss.is_null() ? 0 : 1;
      sum += loss.is_null() ? 0 : loss.get<double>();
    }
    EXPECT_EQ(line["losses"].size(), 800U);
    EXPECT_EQ(scored, record.loss()->tokens);
    EXPECT_NEAR(sum / record.loss()->nll, 1, 1e-5);
    double blocks = 0;
    for (const double block : record.loss()->blocks) blocks += std::isnan(block) ? 0 : block;
    EXPECT_NEAR(blocks / record.loss()->nll, 1, 1e-4);
  }
}

// Published models and the demo.
constexpr int64_t kTrainedLengths[] = {512,   2048,    4096,    8192,    16384,     32768,  40960,
                                       65536, 128'000, 131'072, 262'144, 1'024'000, 1 << 20};

// Lengths that do not fit are refused; the error names lengths that fit.
TEST_F(SweepTest, DefaultsFitEveryTrainedLength) {
  std::string book;
  while (book.size() < 1'000'000) book += fox_lines(400);
  put("book.txt", book);
  for (const int64_t l0 : kTrainedLengths) {
    SCOPED_TRACE(l0);
    engine_.model.spec.rope().original_ctx = engine_.model.spec.rope().max_position_embeddings = l0;
    SweepOptions options;
    options.text = dir_ / "book.txt";
    std::string refused = error_of([&] { Schedule(engine_, options).check(); });
    std::smatch fits;
    if (std::regex_search(refused, fits, std::regex("`lengths`[^0-9]*([0-9]+)"))) {
      EXPECT_GT(l0, 262'144);
      options.lengths = {std::stoll(fits[1])};
      refused = error_of([&] { Schedule(engine_, options).check(); });
    }
    EXPECT_EQ(refused, "");
    const Schedule measured(engine_, options);
    const auto& found = measured.options().lengths;
    const bool open = options.lengths.empty();
    const int64_t longest = found.back();
    EXPECT_EQ(longest, open ? l0 << (found.size() - 1) : options.lengths[0]);
    EXPECT_EQ(measured.notes().size() + found.size(), open ? 3U : 1U);
    EXPECT_GE(*measured.options().max_tokens, longest - 1);
    double seconds = 0;
    for (const auto& [kind, one] : measured.seconds_left({measured.plan(), {}})) seconds += one;
    EXPECT_GT(seconds, static_cast<double>(longest));

    Session session = engine_.session();
    Session* const one = &session;
    const TokenSource text(std::vector<int32_t>(3000, 1));
    for (const PerplexityMethod method :
         {PerplexityMethod::kSliding, PerplexityMethod::kChunks, PerplexityMethod::kGrowing}) {
      PerplexityOptions perplexity;
      perplexity.method = method;
      perplexity.bos = {1};
      perplexity.ctx = {default_ctx(perplexity, l0, text.size())};
      EXPECT_EQ(error_of([&] { check_windows({&one, 1}, text, perplexity); }), "");
    }
    const PasskeyOptions passkeys;
    const TextCodec codec = prompt_codec(*engine_.tokenizer);
    for (const int64_t length : default_passkey_lengths(l0))
      EXPECT_EQ(error_of([&] { check_passkey_length(codec, passkeys, length); }), "");
  }
}

TEST_F(SweepTest, AShortTextNamesTheLengthsThatFit) {
  options_.lengths = {512, 2000};
  EXPECT_TRUE(names(error_of([&] { sweep().check(); }), "`max_tokens` 1999 | `lengths` | 801"));
  options_.max_tokens = 0;
  put("text.txt", fox_lines(400).substr(0, 900));
  EXPECT_TRUE(names(error_of([&] { sweep().check(); }), "text.txt | `lengths`"));
}

TEST_F(SweepTest, UnitsAreOrdered) {
  const auto units = sweep().units();
  EXPECT_EQ(units.front(), (Unit{Kind::kGrowing, "none", 640}));
  EXPECT_EQ(units[5], (Unit{Kind::kPasskey, "none", 640}));
  EXPECT_EQ(units.back(), (Unit{Kind::kPerplexity, "yarn", 512}));
}

TEST_F(SweepTest, TakenOverResultsEqualMeasuredOnes) {
  const Measurements all = run("all.jsonl");
  const SweepTable together = tabulate(all);
  for (const std::string scaling : {"none", "linear", "dynamic", "yarn"}) {
    options_.scalings = {scaling};
    const Measurements alone = run(scaling + ".jsonl");
    const SweepTable table = tabulate(alone);
    for (const int64_t length : options_.lengths) {
      EXPECT_EQ(find_cell(table.perplexity, {scaling, length})->ppl,
                find_cell(together.perplexity, {scaling, length})->ppl);
      EXPECT_EQ(table.retrieval(scaling, NeedleTask::kPasskey, length)->found,
                together.retrieval(scaling, NeedleTask::kPasskey, length)->found);
    }
    for (const auto& column : table.growing_columns)
      EXPECT_EQ(find_record(alone, "growing", column.name())["nll"],
                find_record(all, "growing", column.name())["nll"]);
  }
  EXPECT_EQ(find_cell(together.perplexity, {"none", 512})->ppl,
            find_cell(together.perplexity, {"dynamic", 512})->ppl);
  EXPECT_NE(find_cell(together.perplexity, {"none", 640})->ppl,
            find_cell(together.perplexity, {"dynamic", 640})->ppl);
}

// A sweep, a shard, sliding windows, a growing context, passkeys.
TEST(MeasurementLogs, EarlierVersionsAreReadAndWrittenAlike) {
  for (const char* name : {"sweep", "shard", "sliding", "growing", "passkey"}) {
    const auto file = golden_dir() / "logs" / (std::string(name) + ".jsonl");
    const Measurements log = read_log(file);
    std::string written = to_json(log.plan).dump() + "\n";
    for (const Record& record : log.records) written += to_json(record).dump() + "\n";
    EXPECT_EQ(written, slurp(file)) << name;
  }
}

TEST(MeasurementLogs, APlanCoversItsUnits) {
  Measurements log = empty_log({"none"}, {256, 512});
  Plan& plan = log.plan;
  plan.growing = {true, 64, {"none", "dynamic"}};
  const auto of = [&](Kind kind, const char* column, int64_t length) {
    return plan.covers(Record::of({kind, column, length}));
  };
  const auto found = [&](double depth, std::optional<int64_t> trial, std::optional<NeedleTask> task) {
    return plan.covers({"none", 512, Retrieval{.depth = depth, .task = task, .trial = trial}});
  };
  EXPECT_TRUE(of(Kind::kGrowing, "dynamic", 512) && of(Kind::kPerplexity, "none", 256));
  EXPECT_FALSE(of(Kind::kGrowing, "none", 256) || of(Kind::kPerplexity, "none", 300));
  EXPECT_FALSE(of(Kind::kSpeed, "yarn", 512) || of(Kind::kDivergence, "none", 512));
  EXPECT_TRUE(found(0.5, {}, {}) && found(1, 4, NeedleTask::kPasskey));
  EXPECT_FALSE(found(0.25, {}, {}) || found(1, 5, {}) || found(1, {}, NeedleTask::kMultikey));
  plan.passkey.tasks = {NeedleTask::kMultikey};
  EXPECT_TRUE(found(0, {}, NeedleTask::kMultikey));
  EXPECT_FALSE(found(0, {}, {}));
  for (const std::optional<int64_t> trial : {std::optional<int64_t>(0), {}}) {
    for (const double depth : plan.passkey.depths) {
      EXPECT_EQ(log.missing({{Kind::kPasskey, "none", 512}}).size(), 1U) << depth;
      log.records.push_back(
          {"none", 512, Retrieval{.depth = depth, .task = NeedleTask::kMultikey, .trial = trial}});
    }
  }
  EXPECT_TRUE(log.missing({{Kind::kPasskey, "none", 512}}).empty());
  plan.growing.measured = plan.speed.measured = false;
  plan.against = PlanAgainst{};
  EXPECT_TRUE(of(Kind::kDivergence, "none", 512));
  EXPECT_FALSE(of(Kind::kGrowing, "none", 512) || of(Kind::kSpeed, "none", 512) ||
               of(Kind::kPerplexity, "dynamic", 512));
}

// Gives every member a wrong type: an error, or the member is ignored.
TEST_F(SweepTest, DamagedLogsAreNamed) {
  const Json header = to_json(sweep().plan());
  const auto expect_line = [&](const std::string& lines, const std::string& words) {
    const std::string found = error_of([&] { parse_log(lines + "\n", "log.jsonl"); });
    EXPECT_TRUE(names(found, words)) << lines;
    EXPECT_EQ(found.empty(), words.empty()) << lines << found;
  };
  for (const char* name : {"sweep", "shard", "sliding", "growing", "passkey"}) {
    std::istringstream log(slurp(golden_dir() / "logs" / (std::string(name) + ".jsonl")));
    std::string first, line;
    for (int number = 1; std::getline(log, line); ++number) {
      if (number == 1) first = line;
      const Json whole = Json::parse(line), flat = whole.flatten();
      for (const auto& [path, value] : flat.items()) {
        Json damaged = whole;
        damaged[Json::json_pointer(path)] = {{"unexpected", true}};
        if (path == "/lariat_sweep") continue;
        expect_line((number == 1 ? "" : first + "\n") + damaged.dump(),
                    "log.jsonl | " + std::to_string(number == 1 ? 1 : 2));
      }
    }
  }
  for (const auto& [pointer, value] :
       std::vector<std::pair<const char*, Json>>{{"/text", nullptr},
                                                 {"/original_ctx", 0},
                                                 {"/original_ctx", 1e300},
                                                 {"/lengths", Json::array()},
                                                 {"/lengths/0", 1.5},
                                                 {"/scalings", std::vector<std::string>(101, "yarn")},
                                                 {"/passkey/depths/0", 2},
                                                 {"/methods", "x"},
                                                 {"/passkey/needles", 0},
                                                 {"/passkey/task", "x"},
                                                 {"/growing/step", 0},
                                                 {"/growing/columns", Json::array()}}) {
    Json damaged = header;
    damaged[Json::json_pointer(pointer)] = value;
    expect_line(damaged.dump(), "log.jsonl | 1");
  }
  Json wide = header;
  wide["lengths"] = wide["passkey"]["depths"] = std::vector<int64_t>(100, 1);
  expect_line(wide.dump(), "log.jsonl | 1");
  expect_line("{\"results\":[]}", "log.jsonl");
  for (const auto& [record, error] : std::vector<std::pair<std::string, std::string>>{
           {"nonsense", "JSON"},
           {R"({"kind":"speed"})", "scaling"},
           {R"({"kind":"speeds","scaling":"none","length":512,"cache_bytes":1})", "kind"},
           {R"({"kind":"perplexity","scaling":"none","length":512,"tokens":9})", ""},
           {R"({"kind":"passkey","scaling":"none","length":512,"depth":7,"trials":1,"correct":1})", "depth"},
           {R"({"kind":"passkey","scaling":"none","length":512,"depth":1,"trials":1,"correct":2})",
            "correct"},
           {R"({"kind":"speed","scaling":"none","length":512,"cache_bytes":-1})", "cache_bytes"},
           {R"({"kind":"growing","scaling":"none","length":512,"tokens":1})", "positions"}})
    expect_line(header.dump() + "\n" + record, error.empty() ? "" : "log.jsonl | 2 | " + error);
}

TEST_F(SweepTest, DuplicateLinesCountOnce) {
  options_.speed = true;
  const std::string once =
      R"({"kind":"speed","scaling":"none","length":512,"cache_bytes":1,"timing":{"seconds":)";
  const std::string log = to_json(sweep().plan()).dump() + "\n" + once + "1}}\n" + once + "2}}\n";
  EXPECT_EQ(parse_log(log, "log.jsonl").records.size(), 1U);
  const std::string other_line = R"({"kind":"speed","scaling":"none","length":512,"cache_bytes":2})";
  EXPECT_TRUE(names(error_of([&] { parse_log(log + other_line + "\n", "log.jsonl"); }),
                    "log.jsonl | 4 | speed/none/512"));
}

TEST_F(SweepTest, LossesOfEveryKindAndWindowAreKept) {
  std::string log = to_json(sweep().plan()).dump() + "\n";
  for (const char* of : {"growing", "perplexity"}) {
    for (const int window : {0, 1, 1}) {
      const Json part = {{"kind", "losses"}, {"scaling", "none"}, {"length", 512}, {"of", of},
                         {"window", window}, {"reached", 0},      {"sizes", {1}},  {"losses", {window}}};
      log += part.dump() + "\n";
    }
  }
  EXPECT_EQ(parse_log(log, "log.jsonl").records.size(), 4U);
}

TEST_F(SweepTest, SpeedAndMemoryAreMeasured) {
  options_.growing = options_.perplexity = options_.passkey = false;
  options_.speed = true;
  const auto start = Stopwatch::now();
  const Measurements log = run("a.jsonl");
  const double all = seconds_since(start);
  EXPECT_TRUE(log.complete());
  const SweepTable table = tabulate(log);
  const auto* value = find_cell(table.speed, {"yarn", 640});
  ASSERT_NE(value, nullptr);
  EXPECT_LT(640 / value->prefill_tok_s + kSpeedSteps / value->decode_tok_s, all);
  Session session(engine_.model, *engine_.backend, engine_.session_for({}));
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, std::vector<int32_t>(640 + kSpeedSteps, 1));
  EXPECT_EQ(value->cache_bytes, sequence.cache().bytes());
  EXPECT_EQ(engine_.model.spec.rope().type, RopeType::kDefault);
}

TEST_F(SweepTest, ScalingsUseTheFactorOfTheirLength) {
  const Schedule measured = sweep();
  EXPECT_EQ(measured.scaling_for("yarn", 1024).factor, 2.0);
  EXPECT_EQ(measured.scaling_for("linear", 256).factor, 1.0);
  EXPECT_EQ(measured.scaling_for("dynamic", 4096).factor, 2.0);
  EXPECT_EQ(measured.scaling_for("none", 4096).type, RopeType::kDefault);
  options_.rope.factor = 8.0;
  EXPECT_EQ(sweep().scaling_for("ntk", 1024).factor, 8.0);
  EXPECT_EQ(sweep().scaling_for("none", 1024).type, RopeType::kDefault);
}

TEST_F(SweepTest, UnfinishedLossesStayWhileOtherUnitsEnd) {
  std::atomic<bool> stop = false;
  options_.growing = options_.passkey = options_.speed = false;
  options_.lengths = {640};
  options_.max_tokens = 2000;
  options_.interrupted = &stop;
  const auto log = dir_ / "a.jsonl";
  const auto run_until = [&](const std::vector<std::string>& columns, const auto& stops) {
    options_.scalings = columns;
    const Schedule schedule(engine_, options_);
    MeasurementLog results(log, schedule.plan(), /*resume=*/true);
    stop = false;
    return run_sweep(schedule, {}, results, [&](const SweepProgress& at) { stop = stop || stops(at); });
  };
  EXPECT_FALSE(run_until({"linear"}, [](const SweepProgress& at) { return at.done > 0; }));
  const size_t kept = read_log(part_file(log)).records.size();
  EXPECT_GE(kept, 1U);
  const std::vector<std::string> both = {"none", "linear"};
  EXPECT_FALSE(run_until(both, [](const SweepProgress& at) { return at.unit.column == Column("linear"); }));
  const auto records = read_log(part_file(log)).records;
  EXPECT_EQ(std::ranges::count(records, Column("linear"), &Record::column), static_cast<int64_t>(kept));
  EXPECT_TRUE(run_until(both, [](const SweepProgress&) { return false; }));
  EXPECT_FALSE(std::filesystem::exists(part_file(log)));
}

}  // namespace
}  // namespace lariat::test
