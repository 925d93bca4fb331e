#include "engine/eval/measure/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/windows.h"
#include "engine/eval/verdict.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/positions/parse_position_method.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDynamicFactor = 2.0;  // transformers' documentation and tests
// Limits on the position buckets of a growing context; between the limits, two per original length. Asked
// ends add up to 18, and a log's list holds 100.
constexpr int64_t kGrowingBuckets = 16, kMostGrowingBuckets = 80;

}  // namespace

PositionMethod Schedule::method_for(const Column& column) const {
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

RopeScaling Schedule::scaling_for(const Column& column, int64_t length) const {
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

Plan Schedule::make_plan() const {
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
  if (!options_.reuse.empty()) {
    plan.perplexity.step = options_.tail;
    plan.perplexity.prefill = parse_column(options_.reuse);
  }
  plan.passkey = passkey_plan(options_.passkeys);
  plan.passkey.measured = options_.passkey;
  plan.speed.measured = options_.speed;
  for (const Column& column : columns_) {
    if (!column.method.empty()) plan.methods[column.method] = method_for(column).name;
  }
  if (options_.perplexity || options_.growing) {
    plan.text = TextFile{options_.text.filename().string(),
                         static_cast<int64_t>(std::filesystem::file_size(options_.text)),
                         options_.tokens == nullptr ? file_fingerprint(options_.text) : ""};
  }
  plan.options.factor = options_.rope.factor;
  plan.options.frequencies.reset();  // differ by scaling
  plan.shard = {options_.shard_index, options_.shard_count};
  return plan;
}

std::vector<Unit> Schedule::units() const {
  const std::vector<Unit> all = plan_.units();
  std::vector<Unit> mine;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int64_t>(i) % options_.shard_count == options_.shard_index) mine.push_back(all[i]);
  }
  return mine;
}

SessionOptions Schedule::session_for(const Unit& unit) const {
  SessionOptions options = engine_.session_for(scaling_for(unit.column, unit.length));
  options.positions = method_for(unit.column);
  options.stale_cache = options.stale_cache || unit.column.stale;
  return options;
}

// Up to the original length, dynamic scalings and factor 1 equal none. A perplexity unit equals the growing
// context if both are one window, in the same prefill chunks, and nothing depends on the length.
std::vector<Unit> Schedule::equals_of(const Unit& unit) const {
  std::vector<Unit> equals;
  if (unit.kind == Kind::kSpeed || unit.column.stale) return equals;
  for (const Column& other : columns_) {
    if (other != unit.column && other.reused == unit.column.reused && same_frequencies(unit, other))
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

// Scales are monotonic in length: comparing the shortest and the longest length suffices.
bool Schedule::same_frequencies(const Unit& unit, const Column& other) const {
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

PerplexityOptions Schedule::perplexity_options(const Unit& unit) const {
  const int64_t buckets = std::clamp(2 * unit.length / std::max<int64_t>(*options_.rope.original_ctx, 1),
                                     kGrowingBuckets, kMostGrowingBuckets);
  PerplexityOptions options{.ctx = {unit.length},
                            .stride = stride_of(unit.length),
                            .step = options_.growing_step,
                            .method = options_.method,
                            .bos = bos_,
                            .buckets = static_cast<int>(buckets),
                            .interrupted = options_.interrupted};
  if (!options_.reuse.empty()) options.step = options_.tail;
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

Plan::Passkey passkey_plan(const PasskeyOptions& options) {
  TextFile hay{"noise"};
  if (const auto& file = options.hay->file; !file.empty())
    hay = {.name = file.filename().string(), .fingerprint = file_fingerprint(file)};
  return {true, options.depths, options.trials, options.seed, options.needles.task, options.needles.count,
          hay};
}

}  // namespace lariat
