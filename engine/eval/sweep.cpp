#include "engine/eval/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/memory_check.h"
#include "engine/stopwatch.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDynamicFactor = 2.0;  // transformers' documentation and tests
constexpr int kDecodeSteps = 32;        // of a speed measurement

bool is_static_scaling(RopeType type) {
  return type == RopeType::kLinear || type == RopeType::kNtk || type == RopeType::kYarn ||
         type == RopeType::kLlama3 || type == RopeType::kProportional;
}

Json new_record(const SweepUnit& unit) {
  return {{"kind", name_of(unit.kind)}, {"scaling", unit.scaling}, {"length", unit.length}};
}

// The scaling of config.json, where its theta and original length are as the options say.
RopeScaling own_scaling(const Model& model, RopeOptions options) {
  options.factor.reset();  // it is for the scalings that the sweep names
  return resolve_rope(model.spec.rope, options);
}

template <class T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

std::set<std::string> keys_of(const SweepRecords& log) {
  std::set<std::string> keys;
  for (const auto& record : log.records) keys.insert(record_key(record));
  return keys;
}

std::vector<std::string> keys_wanted(const SweepUnit& unit, const std::vector<double>& depths) {
  Json record = new_record(unit);
  if (unit.kind != SweepUnit::Kind::kPasskey) return {record_key(record)};
  std::vector<std::string> keys;
  for (const double depth : depths) {
    record["depth"] = depth;
    keys.push_back(record_key(record));
  }
  return keys;
}

bool holds_all(const std::set<std::string>& have, const std::vector<std::string>& wanted) {
  return std::ranges::all_of(wanted, [&](const std::string& key) { return have.contains(key); });
}

std::vector<SweepUnit> all_units(const std::vector<std::string>& scalings,
                                 const std::vector<int64_t>& lengths, bool perplexity, bool passkey,
                                 bool speed) {
  std::vector<SweepUnit> units;
  for (const int64_t length : lengths) {
    for (const auto& scaling : scalings) {
      if (perplexity) units.push_back({SweepUnit::Kind::kPerplexity, scaling, length});
      if (passkey) units.push_back({SweepUnit::Kind::kPasskey, scaling, length});
      if (speed) units.push_back({SweepUnit::Kind::kSpeed, scaling, length});
    }
  }
  return units;
}

}  // namespace

std::string_view name_of(SweepUnit::Kind kind) {
  return kind == SweepUnit::Kind::kPerplexity ? "perplexity"
         : kind == SweepUnit::Kind::kPasskey  ? "passkey"
                                              : "speed";
}

Sweep::Sweep(const Model& model, Backend& backend, const Tokenizer& tokenizer,
             std::function<SessionOptions(const RopeScaling&)> session_options, const SweepOptions& options)
    : model_(model),
      backend_(backend),
      session_options_(std::move(session_options)),
      options_(options),
      own_(own_scaling(model, options.rope)),
      codec_(prompt_codec(tokenizer)),
      tokenizer_(tokenizer),
      bos_(text_bos(tokenizer)) {
  if (!options_.rope.original_ctx) options_.rope.original_ctx = own_.original_ctx;
  const int64_t l0 = *options_.rope.original_ctx;
  if (options_.lengths.empty()) options_.lengths = {l0, 2 * l0, 4 * l0};
  sort_unique(options_.lengths);
  sort_unique(options_.passkeys.depths);
  auto& names = options_.scalings;
  for (size_t i = 0; i < names.size(); ++i) {
    names.erase(std::remove(names.begin() + static_cast<std::ptrdiff_t>(i) + 1, names.end(), names[i]),
                names.end());
  }
  options_.perplexity = options_.perplexity && !options_.text.empty();
  options_.passkeys.interrupted = options_.interrupted;
}

RopeScaling Sweep::scaling_for(const std::string& name, int64_t length) const {
  RopeOptions rope = options_.rope;
  if (name == "model") return own_;
  const RopeType type = parse_rope_type(name);
  rope.scaling = name;
  const double stretch = static_cast<double>(length) / static_cast<double>(*rope.original_ctx);
  if (type == RopeType::kDefault) rope.factor.reset();
  if (is_static_scaling(type) && !rope.factor) rope.factor = std::max(1.0, stretch);
  if (type == RopeType::kDynamic && !rope.factor) rope.factor = kDynamicFactor;
  return resolve_rope(own_, rope);
}

Json Sweep::header() const {
  const SessionOptions session = session_options_(own_);
  const auto dir = std::filesystem::absolute(model_.spec.file).parent_path();
  Json text = nullptr;
  if (options_.perplexity) {
    text = {{"name", options_.text.filename().string()},
            {"bytes", std::filesystem::file_size(options_.text)},
            {"fingerprint", file_fingerprint(options_.text)}};
  }
  const PasskeyOptions& passkeys = options_.passkeys;
  Json haystack = {{"name", "noise"}};
  if (const auto& hay = passkeys.hay->file; !hay.empty()) {
    haystack = {{"name", hay.filename().string()}, {"fingerprint", file_fingerprint(hay)}};
  }
  Json factor = nullptr;
  if (options_.rope.factor) factor = *options_.rope.factor;
  return {{"lariat_sweep", 1},
          {"model", {{"name", dir.filename().string()}, {"fingerprint", model_fingerprint(dir)}}},
          {"text", text},
          {"original_ctx", *options_.rope.original_ctx},
          {"scalings", options_.scalings},
          {"lengths", options_.lengths},
          {"perplexity",
           {{"measured", options_.perplexity},
            {"method", name_of(options_.method)},
            {"stride", options_.stride},
            {"max_tokens", options_.max_tokens}}},
          {"passkey",
           {{"measured", options_.passkey},
            {"depths", passkeys.depths},
            {"trials", passkeys.trials},
            {"seed", passkeys.seed},
            {"task", name_of(passkeys.needles.task)},
            {"needles", passkeys.needles.count},
            {"haystack", haystack}}},
          {"speed", {{"measured", options_.speed}}},
          {"options",
           {{"backend", backend_.name()},
            {"dtype", name_of(model_.weights.dtype)},
            {"k_dtype", name_of(session.k_dtype)},
            {"v_dtype", name_of(session.v_dtype)},
            {"factor", factor},
            {"theta", own_.theta},
            {"steps_per_octave", session.rope_steps},
            {"stale_cache", session.stale_cache}}},
          {"shard", {{"index", options_.shard_index}, {"count", options_.shard_count}}}};
}

void Sweep::check() {
  const int64_t longest = options_.lengths.back(), shortest = options_.lengths.front();
  for (const auto& scaling : options_.scalings) {
    for (const int64_t length : options_.lengths) scaling_for(scaling, length);
  }
  Session session(model_, backend_, session_options_(own_));
  const int64_t most = longest + std::max<int64_t>(kDecodeSteps, options_.passkeys.max_new_tokens),
                limit = session.options().max_ctx;
  if (limit > 0 && most > limit) {
    throw Error(
        fmt::format(
            "a length of {} needs sequences of {} tokens (its answer included), more than the {} allowed",
            longest, most, limit),
        Remedy::kLongerContext);
  }
  check_memory(session, most, options_.passkey ? 2 : 1, fmt::format("a length of {}", longest));
  if (options_.passkey) check_passkey_length(codec_, options_.passkeys, shortest);
  if (options_.perplexity) {
    FileTokens file(options_.text, tokenizer_);
    TokenSource source([&](std::vector<int32_t>& tokens) { return file.read(tokens); }, options_.max_tokens);
    const int64_t holds = longest - (bos_ ? 1 : 0), have = source.count(holds);
    if (have < holds) {
      throw Error(fmt::format("{}: the text used has {} tokens and the longest window holds {}",
                              options_.text.string(), have, holds),
                  Remedy::kLongerText);
    }
  }
}

// A guess at the work, in tokens through the model; attention adds its share on long sequences.
double Sweep::cost(const SweepUnit& unit) const {
  const auto length = static_cast<double>(unit.length);
  double tokens = length + kDecodeSteps;
  if (unit.kind == SweepUnit::Kind::kPasskey) {
    tokens = 0.7 * length * static_cast<double>(options_.passkeys.depths.size()) *
             static_cast<double>(options_.passkeys.trials);
  } else if (unit.kind == SweepUnit::Kind::kPerplexity) {
    const bool sliding = options_.method == PerplexityMethod::kSliding;
    const double overlap = sliding ? std::max(1.0, length / static_cast<double>(options_.stride)) : 1.0;
    tokens = overlap * static_cast<double>(options_.max_tokens > 0 ? options_.max_tokens : 1 << 20);
  }
  return tokens * (1.0 + length / 8192.0);
}

std::vector<SweepUnit> Sweep::units() const {
  std::vector<SweepUnit> all =
      all_units(options_.scalings, options_.lengths, options_.perplexity, options_.passkey, options_.speed);
  if (options_.shard_count == 1) return all;
  // The most expensive first, each to the shard with the least to do; every shard computes the same plan.
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cost(all[a]) > cost(all[b]); });
  std::vector<double> load(static_cast<size_t>(options_.shard_count));
  std::vector<size_t> mine;
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    if (least - load.begin() == options_.shard_index) mine.push_back(i);
    *least += cost(all[i]);
  }
  std::sort(mine.begin(), mine.end());
  std::vector<SweepUnit> units;
  units.reserve(mine.size());
  for (const size_t i : mine) units.push_back(all[i]);
  return units;
}

bool Sweep::run(SweepLog& log, const std::function<void(const SweepProgress&)>& progress) {
  const std::vector<SweepUnit> mine = units();
  double total = 0, done = 0;
  for (const auto& unit : mine) total += cost(unit);
  for (const auto& unit : mine) {
    const double share = cost(unit) / total;
    const auto report = [&](double part) {
      if (progress) progress({unit, std::min(1.0, done + share * part)});
    };
    report(0);
    if (!run_unit(unit, log, report)) return false;
    done += share;
  }
  return true;
}

bool Sweep::run_unit(const SweepUnit& unit, SweepLog& log, const std::function<void(double)>& progress) {
  if (holds_all(keys_of(log.contents()), keys_wanted(unit, options_.passkeys.depths))) return true;
  if (options_.interrupted != nullptr && options_.interrupted->load()) return false;
  if (copy_equal(unit, log)) return true;
  Session session(model_, backend_, session_options_(scaling_for(unit.scaling, unit.length)));
  if (unit.kind == SweepUnit::Kind::kPerplexity) return run_perplexity(unit, session, log, progress);
  if (unit.kind == SweepUnit::Kind::kPasskey) return run_passkey(unit, session, log, progress);
  run_speed(unit, session, log);
  return true;
}

// Scalings that rotate every key and query of a unit alike give the same numbers: up to the original length a
// dynamic scaling is none, and so is a factor of 1. Such a unit takes over what was measured.
bool Sweep::copy_equal(const SweepUnit& unit, SweepLog& log) const {
  if (unit.kind == SweepUnit::Kind::kSpeed) return false;
  for (const auto& other : options_.scalings) {
    if (other == unit.scaling || !same_frequencies(unit, other)) continue;
    std::vector<Json> records;
    for (const auto& record : log.contents().records) {
      if (record["kind"] != name_of(unit.kind) || record["scaling"] != other ||
          record["length"] != unit.length) {
        continue;
      }
      records.push_back(without_timing(record));
      records.back()["scaling"] = unit.scaling;
    }
    if (records.size() != keys_wanted(unit, options_.passkeys.depths).size()) continue;
    const auto have = keys_of(log.contents());
    for (const auto& record : records) {
      if (!have.contains(record_key(record))) log.append(record);
    }
    return true;
  }
  return false;
}

// A scale moves in one direction as a sequence grows, so that the ends of the unit's lengths tell all.
bool Sweep::same_frequencies(const SweepUnit& unit, const std::string& other) const {
  const RopeScaling a = scaling_for(unit.scaling, unit.length), b = scaling_for(other, unit.length);
  const int steps = session_options_(own_).rope_steps;
  const bool grows = unit.kind == SweepUnit::Kind::kPasskey;  // the answer comes after the prompt
  const int64_t longest = unit.length + (grows ? options_.passkeys.max_new_tokens : 0);
  for (const int64_t length : {int64_t{1}, longest}) {
    if (rope_frequencies(a, rope_step_length(a, length, steps)) !=
        rope_frequencies(b, rope_step_length(b, length, steps))) {
      return false;
    }
  }
  return true;
}

bool Sweep::run_perplexity(const SweepUnit& unit, Session& session, SweepLog& log,
                           const std::function<void(double)>& progress) {
  FileTokens file(options_.text, tokenizer_);
  TokenSource source([&](std::vector<int32_t>& tokens) { return file.read(tokens); }, options_.max_tokens);
  const PerplexityOptions options{.ctx = {unit.length},
                                  .stride = options_.stride,
                                  .method = options_.method,
                                  .bos = bos_,
                                  .interrupted = options_.interrupted};
  const auto start = Stopwatch::now();
  const auto results = measure_perplexity(
      session, source, options_.text.string(), options,
      [&](const PerplexityProgress& at) { progress(share_of_text(at.position, source, file)); });
  const PerplexityResult& result = results.front();
  if (!result.complete) return false;
  Json record = new_record(unit);
  record["tokens"] = result.tokens;
  record["nll"] = result.nll;  // JSON has null for what is not finite
  record["ppl"] = result.ppl();
  record["stderr"] = result.standard_error();
  record["timing"] = {{"seconds", seconds_since(start)}};
  log.append(record);
  return true;
}

bool Sweep::run_passkey(const SweepUnit& unit, Session& session, SweepLog& log,
                        const std::function<void(double)>& progress) {
  const auto have = keys_of(log.contents());
  PasskeyOptions options = options_.passkeys;
  std::erase_if(options.depths, [&](double depth) {
    Json record = new_record(unit);
    record["depth"] = depth;
    return have.contains(record_key(record));
  });
  auto start = Stopwatch::now();
  return measure_passkey(
      session, codec_, unit.length, options,
      [&](const PasskeyCell& cell) {
        Json record = new_record(unit);
        record["depth"] = cell.depth;
        record["trials"] = cell.trials.size();
        record["correct"] = cell.correct();
        if (options.needles.task != NeedleTask::kPasskey) record["recall"] = cell.recall();
        record["timing"] = {{"seconds", seconds_since(start)}};
        start = Stopwatch::now();
        log.append(record);
      },
      progress);
}

void Sweep::run_speed(const SweepUnit& unit, Session& session, SweepLog& log) {
  std::vector<int32_t> tokens(static_cast<size_t>(unit.length));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(model_.spec.vocab_size));
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
  for (int i = 0; i < kDecodeSteps; ++i)
    session.decode(sequence, tokens[static_cast<size_t>(i) % tokens.size()]);
  const double decode = seconds_since(start);
  Json record = new_record(unit);
  record["cache_bytes"] = sequence.cache().bytes();
  record["rerotations"] = sequence.cache().rerotations().count;
  record["timing"] = {{"prefill_tok_s", static_cast<double>(unit.length) / prefill},
                      {"decode_tok_s", kDecodeSteps / decode},
                      {"rerotation_s", sequence.cache().rerotations().seconds}};
  log.append(record);
}

bool is_complete(const SweepRecords& log) {
  const Json& header = log.header;
  const auto units = all_units(header["scalings"], header["lengths"], header["perplexity"]["measured"],
                               header["passkey"]["measured"], header["speed"]["measured"]);
  const auto have = keys_of(log);
  return std::ranges::all_of(units, [&](const SweepUnit& unit) {
    return holds_all(have, keys_wanted(unit, header["passkey"]["depths"]));
  });
}

}  // namespace lariat
