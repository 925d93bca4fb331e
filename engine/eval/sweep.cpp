#include "engine/eval/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/windows.h"
#include "engine/memory_check.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDynamicFactor = 2.0;  // transformers' documentation and tests
// A growing context has at least so many buckets of positions, and two to the original length, which reports
// look at.
constexpr int64_t kGrowingBuckets = 16, kMostGrowingBuckets = 96;

// The scaling of config.json, where its theta and original length are as the options say.
RopeScaling own_scaling(const Model& model, RopeOptions options) {
  options.factor.reset();  // it is for the scalings that the sweep names
  return resolve_rope(model.spec.rope(), options);
}

}  // namespace

Sweep::Sweep(const Engine& engine, const SweepOptions& options)
    : engine_(engine),
      options_(options),
      own_(own_scaling(engine.model, options.rope)),
      session_(engine.session_for(own_)),
      codec_(prompt_codec(*engine.tokenizer)),
      bos_(text_bos(*engine.tokenizer)) {
  if (!options_.rope.original_ctx) options_.rope.original_ctx = own_.original_ctx;
  const int64_t l0 = *options_.rope.original_ctx;
  if (options_.lengths.empty()) options_.lengths = {l0, 2 * l0, 4 * l0};
  sort_unique(options_.lengths);
  sort_unique(options_.passkeys.depths);
  auto& names = options_.scalings;
  for (std::string& name : names) name = plain_scaling_name(name);
  for (size_t i = 0; i < names.size(); ++i) {
    names.erase(std::remove(names.begin() + static_cast<std::ptrdiff_t>(i) + 1, names.end(), names[i]),
                names.end());
  }
  options_.perplexity = options_.perplexity && !options_.text.empty();
  options_.growing = options_.growing && !options_.text.empty();
  options_.passkeys.interrupted = options_.interrupted;
  options_.passkeys.eos_ids = engine.eos_ids();
  options_.passkeys.max_new_tokens = answer_tokens(codec_, options_.passkeys.needles);
}

RopeScaling Sweep::scaling_for(const std::string& name, int64_t length) const {
  RopeOptions rope = options_.rope;
  if (name == "model") return own_;
  const RopeType type = parse_rope_type(name);
  rope.scaling = name;
  const double stretch = static_cast<double>(length) / static_cast<double>(*rope.original_ctx);
  if (type == RopeType::kDefault) rope.factor.reset();
  if (needs_factor(type) && !rope.factor) rope.factor = std::max(1.0, stretch);
  if (type == RopeType::kDynamic && !rope.factor) rope.factor = kDynamicFactor;
  return resolve_rope(own_, rope);
}

// The part of the header that says what is measured.
Json Sweep::plan() const {
  const int64_t longest = options_.lengths.back();
  Json growing = {{"measured", options_.growing}};
  if (options_.growing) {
    std::vector<std::string> columns;
    for (const auto& scaling : options_.scalings) {
      columns.push_back(scaling);
      if (!session_.stale_cache && scaling_for(scaling, longest).depends_on_length())
        columns.push_back(scaling + std::string(kStale));
    }
    growing["step"] = options_.growing_step;
    growing["columns"] = columns;
  }
  const NeedleOptions& needles = options_.passkeys.needles;
  Json haystack = {{"name", "noise"}};
  if (const auto& hay = options_.passkeys.hay->file; !hay.empty())
    haystack = {{"name", hay.filename().string()}, {"fingerprint", file_fingerprint(hay)}};
  return {{"scalings", options_.scalings},
          {"lengths", options_.lengths},
          {"growing", growing},
          {"perplexity",
           {{"measured", options_.perplexity},
            {"method", name_of(options_.method)},
            {"stride", options_.stride},
            {"max_tokens", options_.max_tokens}}},
          {"passkey",
           {{"measured", options_.passkey},
            {"depths", options_.passkeys.depths},
            {"trials", options_.passkeys.trials},
            {"seed", options_.passkeys.seed},
            {"task", name_of(needles.task)},
            {"needles", needles.count},
            {"haystack", haystack}}},
          {"speed", {{"measured", options_.speed}}}};
}

Json Sweep::header() const {
  const auto dir = std::filesystem::absolute(engine_.model.spec.file).parent_path();
  Json text = nullptr;
  if (options_.perplexity || options_.growing) {
    text = {{"name", options_.text.filename().string()},
            {"bytes", std::filesystem::file_size(options_.text)},
            {"fingerprint", file_fingerprint(options_.text)}};
  }
  Json factor = nullptr;
  if (options_.rope.factor) factor = *options_.rope.factor;
  Json header = {{"lariat_sweep", 1},
                 {"model", {{"name", dir.filename().string()}, {"fingerprint", model_fingerprint(dir)}}},
                 {"text", text},
                 {"original_ctx", *options_.rope.original_ctx}};
  header.update(plan());
  header["options"] = {{"backend", engine_.backend->name()},
                       {"dtype", name_of(engine_.model.weights.dtype)},
                       {"k_dtype", name_of(session_.k_dtype)},
                       {"v_dtype", name_of(session_.v_dtype)},
                       {"factor", factor},
                       {"theta", own_.theta},
                       {"steps_per_octave", session_.rope_steps},
                       {"stale_cache", session_.stale_cache}};
  header["shard"] = {{"index", options_.shard_index}, {"count", options_.shard_count}};
  return header;
}

void Sweep::check() {
  const int64_t longest = options_.lengths.back(), shortest = options_.lengths.front();
  for (const auto& scaling : options_.scalings) {
    for (const int64_t length : options_.lengths) scaling_for(scaling, length);
  }
  Session session(engine_.model, *engine_.backend, session_);
  const int64_t most = longest + std::max<int64_t>(kSpeedSteps, options_.passkeys.max_new_tokens),
                limit = session.options().max_ctx;
  if (limit > 0 && most > limit) {
    throw ContextFull(
        fmt::format("a length of {} needs sequences of {} (its answer included), more than the {} allowed",
                    longest, counted(most, "token"), limit));
  }
  check_memory(session, most, options_.passkey ? 2 : 1, fmt::format("a length of {}", longest));
  if (options_.passkey) check_passkey_length(codec_, options_.passkeys, shortest);
  if (options_.perplexity || options_.growing) {
    const int64_t holds = longest - (bos_ ? 1 : 0), have = text().size();
    if (have < holds) {
      throw Error(
          fmt::format("{} and the longest window holds {}{}", text().size_in_words(), holds, kTextTooShort));
    }
  }
}

const TokenSource& Sweep::text() {
  if (!text_) text_.emplace(read_tokens(options_.text, *engine_.tokenizer, options_.max_tokens));
  return *text_;
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
  double total = 0, before = 0;
  for (const auto& unit : left) total += static_cast<double>(unit.length);
  for (const auto& unit : left) {
    const auto report = [&](double part) {
      if (progress) progress(unit, (before + part * static_cast<double>(unit.length)) / total);
    };
    report(0);
    if (!run_unit(unit, log, report)) return false;
    before += static_cast<double>(unit.length);
  }
  return true;
}

bool Sweep::run_unit(const SweepUnit& unit, SweepLog& log, const ProgressFn& progress) {
  if (options_.interrupted != nullptr && options_.interrupted->load()) return false;
  if (copy_equal(unit, log)) return true;
  SessionOptions options = engine_.session_for(scaling_for(scaling_of(unit.scaling), unit.length));
  options.stale_cache = options.stale_cache || is_stale(unit.scaling);
  Session session(engine_.model, *engine_.backend, options);
  if (unit.kind == "passkey") return run_passkey(unit, session, log, progress);
  if (unit.kind != "speed") return run_losses(unit, session, log, progress);
  run_speed(unit, session, log);
  return true;
}

// Takes over what was measured of an equal unit. Scalings that rotate every key and query of a unit alike
// give the same numbers: up to the original length a dynamic scaling is none, and so is a factor of 1.
bool Sweep::copy_equal(const SweepUnit& unit, SweepLog& log) const {
  if (unit.kind == "speed" || is_stale(unit.scaling)) return false;
  for (const auto& other : options_.scalings) {
    const SweepUnit equal{unit.kind, other, unit.length};
    if (equal == unit || !missing_units(log.contents(), {equal}).empty() || !same_frequencies(unit, other))
      continue;
    auto have = record_keys(log.contents());
    for (Json record : std::vector(log.contents().records)) {
      if (record["kind"] != unit.kind || record["scaling"] != other || record["length"] != unit.length)
        continue;
      record["scaling"] = unit.scaling;
      if (have.insert(record_key(record)).second) log.append(without_timing(record));
    }
    return true;
  }
  return false;
}

// A scale moves in one direction as a sequence grows, so that the ends of the unit's lengths tell all.
bool Sweep::same_frequencies(const SweepUnit& unit, const std::string& other) const {
  const RopeScaling a = scaling_for(unit.scaling, unit.length), b = scaling_for(other, unit.length);
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

bool Sweep::run_losses(const SweepUnit& unit, Session& session, SweepLog& log, const ProgressFn& progress) {
  const bool growing = unit.kind == "growing";
  const int64_t buckets = std::clamp(2 * unit.length / std::max<int64_t>(*options_.rope.original_ctx, 1),
                                     kGrowingBuckets, kMostGrowingBuckets);
  const PerplexityOptions options{.ctx = {unit.length},
                                  .stride = options_.stride,
                                  .step = options_.growing_step,
                                  .method = growing ? PerplexityMethod::kGrowing : options_.method,
                                  .bos = bos_,
                                  .buckets = static_cast<int>(buckets),
                                  .interrupted = options_.interrupted};
  const auto start = Stopwatch::now();
  const auto show = [&](const PerplexityProgress& at) { progress(at.share()); };
  const auto results = measure_perplexity(session, text(), options, show);
  const PerplexityResult& result = results.front();
  if (!result.complete) return false;
  Json record = unit.record();
  const RopeScaling& rope = session.rope();
  if (growing && needs_factor(rope.type) && rope.factor > 1) record["factor"] = rope.factor;
  record["tokens"] = result.tokens;
  record["nll"] = result.nll;  // JSON has null for what is not finite
  record["ppl"] = result.ppl();
  record["stderr"] = result.standard_error();
  record["timing"] = {{"seconds", seconds_since(start)}};
  if (growing) record["positions"] = to_json(result.positions);
  log.append(record);
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
    log.append(record);
  };
  return measure_passkey(session, codec_, unit.length, options, on_cell, progress);
}

void Sweep::run_speed(const SweepUnit& unit, Session& session, SweepLog& log) {
  std::vector<int32_t> tokens(static_cast<size_t>(unit.length));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(engine_.model.spec.vocab_size));
  }
  {
    Sequence warm = session.new_sequence();  // pages, threads and packed weights
    session.prefill(warm, std::span(tokens).first(std::min<size_t>(tokens.size(), 64)));
    session.decode(warm, tokens[0]);
  }
  Sequence sequence = session.new_sequence();
  auto start = Stopwatch::now();
  session.prefill(sequence, tokens);
  const double prefill = seconds_since(start);
  start = Stopwatch::now();
  for (int i = 0; i < kSpeedSteps; ++i)
    session.decode(sequence, tokens[static_cast<size_t>(i) % tokens.size()]);
  const double decode = seconds_since(start);
  Json record = unit.record();
  record["cache_bytes"] = sequence.cache().bytes();
  record["rerotations"] = sequence.cache().rerotations().count;
  record["timing"] = {{"prefill_tok_s", static_cast<double>(unit.length) / prefill},
                      {"decode_tok_s", kSpeedSteps / decode},
                      {"rerotation_s", sequence.cache().rerotations().seconds}};
  log.append(record);
}

}  // namespace lariat
