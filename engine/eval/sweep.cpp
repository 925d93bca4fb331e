#include "engine/eval/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/memory_check.h"
#include "engine/eval/run_log.h"
#include "engine/eval/sweep_column.h"
#include "engine/eval/verdict.h"
#include "engine/eval/windows.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDynamicFactor = 2.0;  // transformers' documentation and tests
// A growing context has at least so many buckets of positions, and two to the original length, which reports
// look at.
constexpr int64_t kGrowingBuckets = 16, kMostGrowingBuckets = 96;

// The record of losses: of windows with the tokens that they move, and what `sums` has of the numbers that
// follow.
Json loss_record(const SweepUnit& unit, int64_t stride, const Json& sums) {
  Json record = unit.record();
  if (unit.kind == "perplexity") record["stride"] = stride;
  for (const char* key : {"tokens", "nll", "ppl", "stderr", "blocks"}) record[key] = sums[key];
  return record;
}

}  // namespace

PositionMethod Sweep::method_for(const std::string& column) const {
  try {
    const SweepColumn read = read_column(column);
    const bool own = read.scaling == "model" && read.method.empty();
    PositionMethod found = parse_position_method(own ? engine_.model.spec.position_method.name : read.method,
                                                 *options_.rope.original_ctx, options_.lengths.back());
    check_position_method(found, engine_.model.spec);
    return found;
  } catch (const UsageError& e) {
    throw UsageError(replace_all(e.what(), "`position_method`", "`scalings`"));
  }
}

RopeScaling Sweep::scaling_for(const std::string& column, int64_t length) const {
  RopeOptions rope = options_.rope;
  const std::string name = read_column(column).scaling;
  if (name == "model") return own_;
  const RopeType type = parse_rope_type(name);
  rope.scaling = name;
  const double stretch = static_cast<double>(length) / static_cast<double>(*rope.original_ctx);
  if (type == RopeType::kDefault) rope.factor.reset();
  if (needs_factor(type) && !rope.factor) rope.factor = std::max(1.0, stretch);
  if (type == RopeType::kDynamic && !rope.factor) rope.factor = kDynamicFactor;
  RopeScaling scaling = resolve_rope(own_, rope);
  // A factor of 1 is no scaling, and not but for rounding.
  const bool nothing =
      needs_factor(type) && scaling.factor == 1 && rope_frequencies(scaling, 1).attention_factor == 1;
  return nothing ? scaling_for("none", length) : scaling;
}

// The part of the header that says what is measured.
Json Sweep::plan() const {
  const int64_t longest = options_.lengths.back();
  Json growing = {{"measured", options_.growing}};
  if (options_.growing) {
    std::vector<std::string> columns;
    for (const auto& name : options_.scalings) {
      columns.push_back(name);
      SweepColumn column = read_column(name);
      if (session_.stale_cache || column.stale || !scaling_for(name, longest).depends_on_length()) continue;
      column.stale = true;
      if (std::ranges::count(options_.scalings, name_of(column)) == 0) columns.push_back(name_of(column));
    }
    growing["step"] = options_.growing_step;
    growing["columns"] = columns;
  }
  return {{"scalings", options_.scalings},
          {"lengths", options_.lengths},
          {"growing", growing},
          {"perplexity",
           {{"measured", options_.perplexity},
            {"method", name_of(options_.method)},
            {"stride", options_.stride},
            {"parts", window_parts()},
            {"max_tokens", *options_.max_tokens}}},
          {"passkey", passkey_plan(options_.passkeys, options_.passkey)},
          {"speed", {{"measured", options_.speed}}}};
}

Json Sweep::header() const {
  Json header = run_header(engine_, session_, options_.lengths);
  header.update(plan());
  for (const auto& name : options_.scalings) {
    if (const std::string method = read_column(name).method; !method.empty())
      header["methods"][method] = method_for(name).name;
  }
  if (options_.perplexity || options_.growing) {
    header["text"] = {{"name", options_.text.filename().string()},
                      {"bytes", std::filesystem::file_size(options_.text)},
                      {"fingerprint", file_fingerprint(options_.text)}};
  }
  Json& run = header["options"];
  run["factor"] = nullptr;
  if (options_.rope.factor) run["factor"] = *options_.rope.factor;
  run.erase("frequencies");  // each scaling has its own
  header["shard"] = {{"index", options_.shard_index}, {"count", options_.shard_count}};
  return header;
}

std::vector<SweepUnit> Sweep::units() const {
  const std::vector<SweepUnit> all = all_units(plan());
  std::vector<SweepUnit> mine;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int64_t>(i) % options_.shard_count == options_.shard_index) mine.push_back(all[i]);
  }
  return mine;
}

bool Sweep::run(SweepLog& log, const SweepProgressFn& progress) {
  const std::vector<SweepUnit> left = missing_units(log.contents(), units());
  const std::vector<double> seconds = seconds_for(left, log.contents());
  const double total = std::max(std::accumulate(seconds.begin(), seconds.end(), 0.0), 1e-9);
  const Pace pace = pace_.value_or(Pace{});
  double before = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto report = [&](double part) {
      const auto length = static_cast<double>(left[i].length);
      // What is read late in a context takes longer.
      if (left[i].kind == "growing") part = pace.reading(0, part * length) / pace.reading(0, length);
      if (progress) progress({left[i], i, left.size(), (before + part * seconds[i]) / total});
    };
    report(0);
    if (!run_unit(left[i], log, report)) return false;
    before += seconds[i];
  }
  return true;
}

bool Sweep::run_unit(const SweepUnit& unit, SweepLog& log, const ProgressFn& progress) {
  if (options_.interrupted != nullptr && options_.interrupted->load()) return false;
  if (copy_equal(unit, log)) return true;
  SessionOptions options = engine_.session_for(scaling_for(unit.scaling, unit.length));
  options.positions = method_for(unit.scaling);
  options.stale_cache = options.stale_cache || read_column(unit.scaling).stale;
  Session session(engine_.model, *engine_.backend, options);
  if (unit.kind == "passkey") return run_passkey(unit, session, log, progress);
  if (unit.kind != "speed") return run_losses(unit, session, log, progress);
  run_speed(unit, session, log);
  return true;
}

// Appends a record with the factor of its scaling.
void Sweep::append(SweepLog& log, Json record) const {
  const RopeScaling rope = scaling_for(record["scaling"], record["length"]);
  record["rope_factor"] = nullptr;
  if (rope.type != RopeType::kDefault) record["rope_factor"] = rope.factor;
  log.append(record);
}

// The units that give the numbers of this one. Scalings that rotate every key and query of a unit alike do:
// up to the original length a dynamic scaling is none, and so is a factor of 1. So does a growing context
// that is one window, where neither scaling nor method follows the length and both are read in the same
// pieces.
std::vector<SweepUnit> Sweep::equals_of(const SweepUnit& unit) const {
  std::vector<SweepUnit> equals;
  if (unit.kind == "speed" || read_column(unit.scaling).stale) return equals;
  for (const auto& other : options_.scalings) {
    if (other != unit.scaling && same_frequencies(unit, other))
      equals.push_back({unit.kind, other, unit.length});
  }
  const bool one_window = text_ && text_->size() == unit.length - std::ssize(bos_);
  const auto stretch = method_for(unit.scaling).stretch;
  const bool follows = scaling_for(unit.scaling, unit.length).depends_on_length() ||
                       (stretch && stretch(1) != stretch(static_cast<double>(unit.length)));
  if (unit.kind == "perplexity" && options_.growing && options_.method == PerplexityMethod::kSliding &&
      one_window && options_.growing_step == session_.prefill_chunk && !follows)
    equals.push_back({"growing", unit.scaling, unit.length});
  return equals;
}

// Takes over what was measured of an equal unit.
bool Sweep::copy_equal(const SweepUnit& unit, SweepLog& log) const {
  for (const SweepUnit& equal : equals_of(unit)) {
    if (!missing_units(log.contents(), {equal}).empty()) continue;
    auto have = record_keys(log.contents());
    for (Json record : std::vector(log.contents().records)) {
      if (record["kind"] != equal.kind || record["scaling"] != equal.scaling ||
          record["length"] != equal.length)
        continue;
      if (equal.kind != unit.kind) record = loss_record(unit, stride_of(unit.length), record);
      record["scaling"] = unit.scaling;
      if (have.insert(record_key(record)).second) append(log, without_timing(record));
    }
    if (options_.on_losses && unit.kind != "passkey") {
      Json line = unit.record();
      line["same_as"] = equal.record();
      options_.on_losses(line);
    }
    return true;
  }
  return false;
}

// A scale moves in one direction as a sequence grows, so that the ends of the unit's lengths tell all.
// Positions are those of one method, and caches none that is stale.
bool Sweep::same_frequencies(const SweepUnit& unit, const std::string& other) const {
  const RopeScaling a = scaling_for(unit.scaling, unit.length), b = scaling_for(other, unit.length);
  if (read_column(other).stale || method_for(unit.scaling).name != method_for(other).name) return false;
  const int steps = session_.rope_steps;
  const bool grows = unit.kind == "passkey";  // the answer comes after the prompt
  const int64_t longest = unit.length + (grows ? options_.passkeys.max_new_tokens : 0);
  for (const int64_t length : {int64_t{1}, longest}) {
    if (rope_frequencies(a, rope_step_length(a, length, steps)) !=
        rope_frequencies(b, rope_step_length(b, length, steps))) {
      return false;
    }
  }
  return true;
}

PerplexityOptions Sweep::perplexity_options(const SweepUnit& unit) const {
  const int64_t buckets = std::clamp(2 * unit.length / std::max<int64_t>(*options_.rope.original_ctx, 1),
                                     kGrowingBuckets, kMostGrowingBuckets);
  return {.ctx = {unit.length},
          .stride = stride_of(unit.length),
          .step = options_.growing_step,
          .method = unit.kind == "growing" ? PerplexityMethod::kGrowing : options_.method,
          .bos = bos_,
          .buckets = static_cast<int>(buckets),
          .interrupted = options_.interrupted};
}

bool Sweep::run_losses(const SweepUnit& unit, Session& session, SweepLog& log, const ProgressFn& progress) {
  const auto start = Stopwatch::now();
  const auto show = [&](const PerplexityProgress& at) { progress(at.share()); };
  // The losses that are known of the unit stand beside the log until all of them are, if there is room for
  // them.
  const std::filesystem::path file = part_file(log.file());
  std::optional<SweepLog> part;
  std::optional<LossJournal> journal;
  PerplexityOptions options = perplexity_options(unit);
  try {
    part.emplace(file, log.contents().header, /*resume=*/true);
    journal.emplace(*part, Json{{"scaling", unit.scaling}, {"length", unit.length}, {"of", unit.kind}},
                    /*asked_for=*/false);
    options.journal = &*journal;
  } catch (const Error&) {
    part.reset();
  }
  const auto results = measure_perplexity(session, *text_, options, show);
  const PerplexityResult& result = results.front();
  if (!result.complete) return false;
  const Json sums = {{"tokens", result.tokens},
                     {"nll", result.nll},  // JSON has null for what is not finite
                     {"ppl", result.ppl()},
                     {"stderr", result.standard_error()},
                     {"blocks", block_sums(result.losses)}};
  Json record = loss_record(unit, stride_of(unit.length), sums);
  record["timing"] = {{"seconds", seconds_since(start)}};
  if (unit.kind == "growing") {
    const RopeScaling& rope = session.rope();
    if (needs_factor(rope.type) && rope.factor > 1) record["factor"] = rope.factor;
    record["text_tokens"] = text_->size();
    record["holds"] = unit.length - std::ssize(bos_);
    record["positions"] = to_json(result.positions);
  }
  append(log, record);
  std::error_code ec;
  if (part || is_sweep_log(file)) std::filesystem::remove(file, ec);
  if (options_.on_losses) {
    Json line = unit.record();
    line["losses"] = losses_json(result.losses);
    options_.on_losses(line);
  }
  return true;
}

bool Sweep::run_passkey(const SweepUnit& unit, Session& session, SweepLog& log, const ProgressFn& progress) {
  const auto have = record_keys(log.contents());
  PasskeyOptions options = options_.passkeys;
  std::erase_if(options.depths, [&](double depth) {
    Json record = unit.record();
    record["depth"] = depth;
    return have.contains(record_key(record));
  });
  auto start = Stopwatch::now();
  const auto on_cell = [&](const PasskeyCell& cell) {
    Json record = passkey_record(unit.scaling, cell, options.needles.task);
    record["timing"] = {{"seconds", seconds_since(start)}};
    start = Stopwatch::now();
    append(log, record);
  };
  return measure_passkey(session, codec_, unit.length, options, on_cell, progress);
}

void Sweep::run_speed(const SweepUnit& unit, Session& session, SweepLog& log) {
  const auto read = [&](Sequence& sequence, std::span<const int32_t> tokens) {
    to_host(session.backend(), forward(session, {&sequence, tokens}));
  };
  const std::vector<int32_t> tokens = some_tokens(unit.length, engine_.model.spec.vocab_size);
  {
    Sequence warm = session.new_sequence();  // pages, threads and packed weights
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
  Json record = unit.record();
  record["cache_bytes"] = sequence.cache().bytes();
  record["rerotations"] = sequence.cache().rerotations().count;
  record["timing"] = {{"prefill_tok_s", static_cast<double>(unit.length) / prefill},
                      {"decode_tok_s", kSpeedSteps / decode},
                      {"rerotation_s", sequence.cache().rerotations().seconds}};
  append(log, record);
}

}  // namespace lariat
