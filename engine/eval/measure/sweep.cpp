#include "engine/eval/measure/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/windows.h"
#include "engine/eval/verdict.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDynamicFactor = 2.0;  // transformers' documentation and tests
// Limits on the position buckets of a growing context; between the limits, two per original length. Asked
// ends add up to 18, and a log's list holds 100.
constexpr int64_t kGrowingBuckets = 16, kMostGrowingBuckets = 80;

}  // namespace

PositionMethod Sweep::method_for(const Column& column) const {
  try {
    const bool own = column.scaling == "model" && column.method.empty();
    PositionMethod found =
        parse_position_method(own ? engine_.model.spec.position_method.name : column.method,
                              *options_.rope.original_ctx, options_.lengths.back());
    check_position_method(found, engine_.model.spec);
    return found;
  } catch (const UsageError& e) {
    throw UsageError(replace_all(e.what(), "`position_method`", "`scalings`"));
  }
}

RopeScaling Sweep::scaling_for(const Column& column, int64_t length) const {
  RopeOptions rope = options_.rope;
  if (column.scaling == "model") return own_;
  const RopeType type = parse_rope_type(column.scaling);
  rope.scaling = column.scaling;
  const double stretch = static_cast<double>(length) / static_cast<double>(*rope.original_ctx);
  if (column.factor) rope.factor = column.factor;
  if (type == RopeType::kDefault) rope.factor.reset();
  if (needs_factor(type) && !rope.factor) rope.factor = std::max(1.0, stretch);
  if (type == RopeType::kDynamic && !rope.factor) rope.factor = kDynamicFactor;
  RopeScaling scaling = resolve_rope(own_, rope);
  // Factor 1 equals no scaling, up to rounding.
  const bool nothing =
      needs_factor(type) && scaling.factor == 1 && rope_frequencies(scaling, 1).attention_factor == 1;
  return nothing ? scaling_for("none", length) : scaling;
}

Plan Sweep::plan() const {
  const auto& lengths = options_.lengths;
  Plan plan = plan_of(engine_, session_, lengths);
  plan.columns = columns_;
  plan.growing.measured = options_.growing;
  plan.growing.step = options_.growing_step;
  for (Column column : columns_) {
    plan.growing.columns.push_back(column);
    if (!options_.stale_too || session_.stale_cache || column.stale ||
        !scaling_for(column, lengths.back()).depends_on_length())
      continue;
    column.stale = true;
    if (std::ranges::count(columns_, column) == 0) plan.growing.columns.push_back(column);
  }
  plan.perplexity = {.measured = options_.perplexity,
                     .method = std::string(name_of(options_.method)),
                     .stride = options_.stride,
                     .parts = window_parts(),
                     .max_tokens = *options_.max_tokens};
  plan.passkey = passkey_plan(options_.passkeys);
  plan.passkey.measured = options_.passkey;
  plan.speed.measured = options_.speed;
  for (const Column& column : columns_) {
    if (!column.method.empty()) plan.methods[column.method] = method_for(column).name;
  }
  if (options_.perplexity || options_.growing) {
    plan.text = TextFile{options_.text.filename().string(),
                         static_cast<int64_t>(std::filesystem::file_size(options_.text)),
                         file_fingerprint(options_.text)};
  }
  plan.options.factor = options_.rope.factor;
  plan.options.frequencies.reset();  // differ by scaling
  plan.shard = {options_.shard_index, options_.shard_count};
  return plan;
}

std::vector<Unit> Sweep::units() const {
  const std::vector<Unit> all = plan().units();
  std::vector<Unit> mine;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int64_t>(i) % options_.shard_count == options_.shard_index) mine.push_back(all[i]);
  }
  return mine;
}

bool Sweep::run(MeasurementLog& log, const SweepProgressFn& progress) {
  const std::vector<Unit> left = log.contents().missing(units());
  const std::vector<double> seconds = seconds_for(left, log.contents());
  const double total = std::max(std::accumulate(seconds.begin(), seconds.end(), 0.0), 1e-9);
  const Pace pace = pace_.value_or(Pace{});
  double before = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto report = [&](double part) {
      const auto length = static_cast<double>(left[i].length);
      // Later tokens of a context take longer.
      if (left[i].kind == Kind::kGrowing) part = pace.reading(0, part * length) / pace.reading(0, length);
      if (progress) progress({left[i], i, left.size(), (before + part * seconds[i]) / total});
    };
    report(0);
    if (!run_unit(left[i], log, report)) return false;
    before += seconds[i];
  }
  return true;
}

bool Sweep::run_unit(const Unit& unit, MeasurementLog& log, const ProgressFn& progress) {
  if (options_.interrupted != nullptr && options_.interrupted->load()) return false;
  if (copy_equal(unit, log)) return true;
  SessionOptions options = engine_.session_for(scaling_for(unit.column, unit.length));
  options.positions = method_for(unit.column);
  options.stale_cache = options.stale_cache || unit.column.stale;
  Session session(engine_.model, *engine_.backend, options);
  if (unit.kind == Kind::kPasskey) return run_passkey(unit, session, log, progress);
  if (unit.kind != Kind::kSpeed) return run_losses(unit, session, log, progress);
  run_speed(unit, session, log);
  return true;
}

void Sweep::append(MeasurementLog& log, Record record) const {
  const RopeScaling rope = scaling_for(record.column, record.length);
  record.rope_factor.reset();
  if (rope.type != RopeType::kDefault) record.rope_factor = rope.factor;
  log.append(record);
}

// Units with identical results: their scalings rotate all keys and queries alike. Up to the original length,
// dynamic scalings and factor 1 equal none. A perplexity unit equals the growing context if both are one
// window, in the same prefill chunks, and nothing depends on the length.
std::vector<Unit> Sweep::equals_of(const Unit& unit) const {
  std::vector<Unit> equals;
  if (unit.kind == Kind::kSpeed || unit.column.stale) return equals;
  for (const Column& other : columns_) {
    if (other != unit.column && same_frequencies(unit, other))
      equals.push_back({unit.kind, other, unit.length});
  }
  const bool one_window = text_ && text_->size() == unit.length - std::ssize(bos_);
  const bool follows =
      follows_length(scaling_for(unit.column, unit.length), method_for(unit.column), unit.length);
  if (unit.kind == Kind::kPerplexity && options_.growing && options_.method == PerplexityMethod::kSliding &&
      one_window && options_.growing_step == session_.prefill_chunk && !follows)
    equals.push_back({Kind::kGrowing, unit.column, unit.length});
  return equals;
}

bool Sweep::copy_equal(const Unit& unit, MeasurementLog& log) const {
  for (const Unit& equal : equals_of(unit)) {
    if (!log.contents().missing({equal}).empty()) continue;
    auto have = log.contents().keys();
    for (Record record : std::vector(log.contents().records)) {
      if (record.unit() != equal) continue;
      if (equal.kind != unit.kind) {
        Loss loss = *record.loss();
        loss.stride = stride_of(unit.length);
        loss.positions.clear();
        record.value = loss;
      }
      record.column = unit.column;
      record.timing.reset();
      if (have.insert(record.key()).second) append(log, record);
    }
    if (options_.on_losses && unit.kind != Kind::kPasskey) {
      Json line = to_json(unit);
      line.update({{"same_as", to_json(equal)}});
      options_.on_losses(line);
    }
    return true;
  }
  return false;
}

// Scales are monotonic in length: comparing the shortest and the longest length suffices.
bool Sweep::same_frequencies(const Unit& unit, const Column& other) const {
  const RopeScaling a = scaling_for(unit.column, unit.length), b = scaling_for(other, unit.length);
  if (other.stale || method_for(unit.column).name != method_for(other).name) return false;
  const int steps = session_.rope_steps;
  const bool grows = unit.kind == Kind::kPasskey;  // the answer follows the prompt
  const int64_t longest = unit.length + (grows ? options_.passkeys.max_new_tokens : 0);
  for (const int64_t length : {int64_t{1}, longest}) {
    if (rope_frequencies(a, rope_step_length(a, length, steps)) !=
        rope_frequencies(b, rope_step_length(b, length, steps))) {
      return false;
    }
  }
  return true;
}

PerplexityOptions Sweep::perplexity_options(const Unit& unit) const {
  const int64_t buckets = std::clamp(2 * unit.length / std::max<int64_t>(*options_.rope.original_ctx, 1),
                                     kGrowingBuckets, kMostGrowingBuckets);
  PerplexityOptions options{.ctx = {unit.length},
                            .stride = stride_of(unit.length),
                            .step = options_.growing_step,
                            .method = options_.method,
                            .bos = bos_,
                            .buckets = static_cast<int>(buckets),
                            .interrupted = options_.interrupted};
  if (unit.kind != Kind::kGrowing) return options;
  options.method = PerplexityMethod::kGrowing;
  std::vector<int64_t> ends = bucket_ends(options, 0, unit.length);
  ends.insert(ends.end(), {*options_.rope.original_ctx, 2 * *options_.rope.original_ctx});
  ends.insert(ends.end(), options_.ends.begin(), options_.ends.end());
  std::erase_if(ends, [&](int64_t end) { return end < 1 || end > unit.length; });
  sort_unique(ends);
  options.ends = ends;
  return options;
}

bool Sweep::run_losses(const Unit& unit, Session& session, MeasurementLog& log, const ProgressFn& progress) {
  const auto start = Stopwatch::now();
  const auto show = [&](const PerplexityProgress& at) { progress(at.share()); };
  // Saves the unit's finished losses next to the log, if the file can be written.
  const std::filesystem::path file = part_file(log.file());
  std::optional<MeasurementLog> part;
  std::optional<LossJournal> journal;
  PerplexityOptions options = perplexity_options(unit);
  try {
    part.emplace(file, log.contents().plan, /*resume=*/true);
    journal.emplace(*part, unit.column, unit.length, unit.kind, /*asked_for=*/false);
    options.journal = &*journal;
  } catch (const Error&) {
    part.reset();
  }
  const auto results = measure_perplexity(session, *text_, options, show);
  const PerplexityResult& result = results.front();
  if (!result.complete) return false;
  Record record{unit.column, unit.length, {}, {}, Timing{.seconds = seconds_since(start)}};
  if (unit.kind == Kind::kPerplexity) {
    record.value = loss_of(result, stride_of(unit.length));
  } else {
    Growing grown{loss_of(result), {}, text_->size(), unit.length - std::ssize(bos_)};
    grown.positions = losses_of(result.positions);
    const RopeScaling& rope = session.rope();
    if (needs_factor(rope.type) && rope.factor > 1) grown.factor = rope.factor;
    record.value = grown;
  }
  append(log, record);
  std::error_code ec;
  if (part || is_measurement_log(file)) std::filesystem::remove(file, ec);
  if (options_.on_losses) {
    Json line = to_json(unit);
    line.update({{"losses", losses_json(result.losses)}});
    options_.on_losses(line);
  }
  return true;
}

bool Sweep::run_passkey(const Unit& unit, Session& session, MeasurementLog& log, const ProgressFn& progress) {
  const auto have = log.contents().keys();
  PasskeyOptions options = options_.passkeys;
  std::erase_if(options.depths, [&](double depth) {
    return have.contains(Record{unit.column, unit.length, Retrieval{.depth = depth}}.key());
  });
  auto start = Stopwatch::now();
  const auto on_cell = [&](const PasskeyCell& cell) {
    Record record = passkey_record(unit.column, cell, options.needles.task);
    record.timing = Timing{.seconds = seconds_since(start)};
    start = Stopwatch::now();
    append(log, record);
  };
  return measure_passkey(session, codec_, unit.length, options, on_cell, progress);
}

void Sweep::run_speed(const Unit& unit, Session& session, MeasurementLog& log) {
  const auto read = [&](Sequence& sequence, std::span<const int32_t> tokens) {
    to_host(session.backend(), forward(session, {&sequence, tokens}));
  };
  const std::vector<int32_t> tokens = some_tokens(unit.length, engine_.model.spec.vocab_size);
  {
    Sequence warm = session.new_sequence();  // warms up pages, threads and packed weights
    read(warm, std::span(tokens).first(std::min<size_t>(tokens.size(), 64)));
    read(warm, std::span(tokens).first(1));
  }
  Sequence sequence = session.new_sequence();
  auto start = Stopwatch::now();
  read(sequence, tokens);
  const double prefill = seconds_since(start);
  start = Stopwatch::now();
  for (int i = 0; i < kSpeedSteps; ++i)
    read(sequence, std::span(tokens).subspan(static_cast<size_t>(i) % tokens.size(), 1));
  const double decode = seconds_since(start);
  const KvCache& cache = sequence.cache();
  const Timing timing{.prefill_tok_s = static_cast<double>(unit.length) / prefill,
                      .decode_tok_s = kSpeedSteps / decode,
                      .rerotation_s = cache.rerotations().seconds};
  const Speed speed{static_cast<int64_t>(cache.bytes()), cache.rerotations().count};
  append(log, {unit.column, unit.length, speed, {}, timing});
}

Plan::Passkey passkey_plan(const PasskeyOptions& options) {
  TextFile hay{"noise"};
  if (const auto& file = options.hay->file; !file.empty())
    hay = {.name = file.filename().string(), .fingerprint = file_fingerprint(file)};
  return {true, options.depths, options.trials, options.seed, options.needles.task, options.needles.count,
          hay};
}

Record passkey_record(const Column& column, const PasskeyCell& cell, NeedleTask task) {
  Retrieval found{.depth = cell.depth, .trials = std::ssize(cell.trials), .correct = cell.correct()};
  if (task != NeedleTask::kPasskey) found.recall = cell.recall();
  return {column, cell.length, found};
}

}  // namespace lariat
