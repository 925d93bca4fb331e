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

TEST_F(SweepTest, APlanHasTheSettingsOfItsRun) {
  SessionOptions session = engine_.session_for(sweep().scaling_for("yarn", 640));
  const auto options = [&] { return plan_of(engine_, session, {512, 640}).options; };
  EXPECT_EQ(options().weights, "none");
  engine_.model.files = open_files(source_dir() / "tests/golden/gguf/mixtral.gguf");
  EXPECT_EQ(options().weights, "BF16");
  EXPECT_FALSE(options().activations);
  session.activations = 16;
  EXPECT_EQ(options().activations, 16);
  const auto plain = options().frequencies;
  session.rope->attention_factor = 3;
  const auto scaled = options().frequencies;
  EXPECT_NE(scaled, plain);
  session.rope->beta_fast = 16;
  EXPECT_NE(options().frequencies, scaled);
  EXPECT_EQ(column_of(session), Column("yarn"));
  session.rope->type = RopeType::kDefault;
  session.positions.name = "dca";
  session.stale_cache = true;
  EXPECT_EQ(column_of(session), Column("dca stale"));
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
