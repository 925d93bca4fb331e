#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/measure.h"
#include "engine/lariat.h"

namespace lariat {

struct SweepOptions {
  // Empty: none, linear, ntk, dynamic, yarn and dynamic-yarn; without RoPE: only none.
  std::vector<std::string> scalings;
  // Empty: 1, 2 and 4 times the original length, limited by text and memory.
  std::vector<int64_t> lengths;
  // Uses factor, original_ctx and theta; ignores scaling and config.
  RopeOptions rope;
  bool growing = true, perplexity = true, passkey = true, speed = true;
  bool stale_too = true;       // growing contexts: dynamic columns also with stale keys
  std::filesystem::path text;  // for growing and perplexity; empty: skips both
  PerplexityMethod method = PerplexityMethod::kSliding;
  int64_t stride = 0;                   // sliding windows; 0: see Schedule::stride_of
  int64_t growing_step = 0;             // 0: default_step()
  std::vector<int64_t> ends{};          // positions that end a bucket of the growing context, besides L0
  std::optional<int64_t> max_tokens{};  // 0: all; unset: longest window, at least 8192
  // Name of a column that prefills: others, but for `checks` of them and those with a position method, score
  // tails of `tail` tokens after copies of its contexts (Prefixes). Only perplexity is measured. Empty: none.
  std::string reuse{};
  int64_t tail = 256, checks = 2;
  // No passkeys, no throughput, text limited to the longest window, windows overlap by half.
  bool quick = false;
  PasskeyOptions passkeys;  // needles, haystack, depths, trials, seed
  int64_t shard_index = 0, shard_count = 1;
  const TokenSource* tokens = nullptr;  // the text's, if read already, for an estimate
  std::function<void(const nlohmann::ordered_json&)> on_losses{};  // all token losses
  const std::atomic<bool>* interrupted = nullptr;
};

Plan::Passkey passkey_plan(const PasskeyOptions& options);

// done: finished fraction of the estimated time.
struct SweepProgress {
  const Unit& unit;
  size_t finished, units;
  double done;
};
using SweepProgressFn = std::function<void(const SweepProgress&)>;

// Seconds per prefilled token, per attended (query, key) pair, and per decode step.
struct Pace {
  double token = 1, pair = 0, step = 0;
  double reading(double from, double to) const {  // prefill of positions [from, to)
    return (to - from) * token + (to * to - from * from) / 2 * pair;
  }
};
// Prefills up to `longest` tokens for about two seconds. If these are too few, attention's cost is estimated
// from multiply-adds.
Pace measure_pace(Session& session, int64_t longest);

// The units to measure with one model and one text, their order and time.
//
// options.rope.factor replaces the default factors (docs/measuring.md), a column's own factor that. L0 is the
// same for all. A position method is configured for the longest length.
//
// All columns share trials, texts and lengths. A growing context is measured once per column, up to the
// longest length.
class Schedule {
 public:
  Schedule(const Engine& engine, const SweepOptions& options);  // engine: has a tokenizer, outlives this

  const Engine& engine() const { return engine_; }
  const SweepOptions& options() const { return options_; }  // with defaults
  // Notes on reduced defaults.
  const std::vector<std::string>& notes() const { return notes_; }
  const TokenSource* text() const { return text_ ? &*text_ : nullptr; }  // the part in use
  const TextCodec& codec() const { return codec_; }
  const Plan& plan() const { return plan_; }
  // Throws Error if a length exceeds memory, the text is too short, a passkey length cannot hold the prompt,
  // or the model does not support a scaling.
  void check() const;

  // In run order. Shards take units round-robin, a part of each length.
  std::vector<Unit> units() const;
  // Units with identical results: their scalings rotate all keys and queries alike.
  std::vector<Unit> equals_of(const Unit& unit) const;
  RopeScaling scaling_for(const Column& column, int64_t length) const;
  SessionOptions session_for(const Unit& unit) const;
  // 1/8 of a sliding window's length (quick: 1/2), at least 256 tokens.
  int64_t stride_of(int64_t length) const;
  PerplexityOptions perplexity_options(const Unit& unit) const;
  int64_t bos_tokens() const { return std::ssize(bos_); }

  Pace pace() const;  // measure_pace
  // Estimated seconds per unit (0: copied from an equal unit), and per kind for units that the log lacks.
  std::vector<double> seconds_for(const std::vector<Unit>& left, const Measurements& log,
                                  const Pace& pace = {}) const;
  std::map<Kind, double> seconds_left(const Measurements& log, const Pace& pace = {}) const;

 private:
  void fill_in();
  void set_reuse();
  Plan make_plan() const;
  // Longest sequence: a prompt and its decoded tokens.
  int64_t most_tokens() const {
    return options_.lengths.back() + std::max<int64_t>(kSpeedSteps, options_.passkeys.max_new_tokens);
  }
  void drop_long_lengths();
  int64_t window_parts() const { return options_.quick ? 2 : 8; }
  PositionMethod method_for(const Column& column) const;
  bool same_frequencies(const Unit& unit, const Column& other) const;
  double seconds_of(const Unit& unit, Pace pace) const;

  const Engine& engine_;
  SweepOptions options_;
  std::vector<Column> columns_;
  RopeScaling own_;         // the model's, with theta and original_ctx of the options
  SessionOptions session_;  // for own_
  TextCodec codec_;
  std::vector<int32_t> bos_;
  std::optional<TokenSource> text_;
  Plan plan_;
  std::vector<std::string> notes_;
};

// Measures all units that the log lacks. Returns false if interrupted.
bool run_sweep(const Schedule& schedule, const Pace& pace, MeasurementLog& log,
               const SweepProgressFn& progress);

}  // namespace lariat
