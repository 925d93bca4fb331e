#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/passkey.h"
#include "engine/eval/measure/perplexity.h"
#include "engine/eval/measurement_log.h"
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
  int64_t stride = 0;                   // sliding windows; 0: see Sweep::stride_of
  int64_t growing_step = 0;             // 0: default_step()
  std::vector<int64_t> ends{};          // positions that end a bucket of the growing context, besides L0
  std::optional<int64_t> max_tokens{};  // 0: all; unset: longest window, at least 8192
  // No passkeys, no throughput, text limited to the longest window, windows overlap by half.
  bool quick = false;
  PasskeyOptions passkeys;  // needles, haystack, depths, trials, seed
  int64_t shard_index = 0, shard_count = 1;
  std::function<void(const nlohmann::ordered_json&)> on_losses{};  // all token losses
  const std::atomic<bool>* interrupted = nullptr;
};

Plan::Passkey passkey_plan(const PasskeyOptions& options);
// Without timing.
Record passkey_record(const Column& column, const PasskeyCell& cell, NeedleTask task);

inline constexpr int64_t kSpeedSteps = 32;  // decoded per speed unit

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
std::vector<int32_t> some_tokens(int64_t n, int64_t vocab);  // deterministic

// Measures scalings x lengths for one model and one text.
//
// A growing context is measured once per column, up to the longest length, and covers the shorter lengths. A
// static scaling uses the factor of the longest length. A dynamic scaling also has a stale column, unless all
// caches are stale.
//
// Column `none` is the unscaled model, and `model` the scaling of config.json. Static scalings (linear, ntk,
// yarn, llama3, proportional) use factor max(1, length / L0), dynamic 2, dynamic-yarn none.
// options.rope.factor overrides all, a column's own factor that. L0 is the same for all. A position method is
// configured for the longest length.
//
// All scalings share trials, texts and lengths. Logs store losses as block sums for paired differences
// (verdict.h).
class Sweep {
 public:
  Sweep(const Engine& engine, const SweepOptions& options);  // engine: has a tokenizer, outlives this

  const SweepOptions& options() const { return options_; }  // with defaults
  // Notes on reduced defaults.
  const std::vector<std::string>& notes() const { return notes_; }
  const TokenSource* text() const { return text_ ? &*text_ : nullptr; }  // the part in use
  // 1/8 of a sliding window's length (quick: 1/2), at least 256 tokens.
  int64_t stride_of(int64_t length) const;
  const std::vector<Column>& columns() const { return columns_; }
  Plan plan() const;
  RopeScaling scaling_for(const Column& column, int64_t length) const;
  PositionMethod method_for(const Column& column) const;

  // Throws Error if a length exceeds memory, the text is too short, a passkey length cannot hold the prompt,
  // or the model does not support a scaling.
  void check();

  // In run order. Shards take units round-robin, a part of each length.
  std::vector<Unit> units() const;
  // Measured on first use (measure_pace).
  const Pace& pace();
  void set_pace(const Pace& pace) { pace_ = pace; }
  // Estimated seconds per unit (0: copied from an equal unit), and per kind for units that the log lacks.
  std::vector<double> seconds_for(const std::vector<Unit>& left, const Measurements& log) const;
  std::map<Kind, double> seconds_left(const Measurements& log) const;
  // Measures all units that the log lacks. Returns false if interrupted.
  bool run(MeasurementLog& log, const SweepProgressFn& progress);

 private:
  void fill_in();
  // Longest sequence: a prompt and its decoded tokens.
  int64_t most_tokens() const {
    return options_.lengths.back() + std::max<int64_t>(kSpeedSteps, options_.passkeys.max_new_tokens);
  }
  void drop_long_lengths();
  int64_t window_parts() const { return options_.quick ? 2 : 8; }
  PerplexityOptions perplexity_options(const Unit& unit) const;
  double seconds_of(const Unit& unit) const;
  using ProgressFn = std::function<void(double done)>;
  bool run_unit(const Unit& unit, MeasurementLog& log, const ProgressFn& progress);
  void append(MeasurementLog& log, Record record) const;
  std::vector<Unit> equals_of(const Unit& unit) const;
  bool copy_equal(const Unit& unit, MeasurementLog& log) const;
  bool same_frequencies(const Unit& unit, const Column& other) const;
  bool run_losses(const Unit& unit, Session& session, MeasurementLog& log, const ProgressFn& progress);
  bool run_passkey(const Unit& unit, Session& session, MeasurementLog& log, const ProgressFn& progress);
  void run_speed(const Unit& unit, Session& session, MeasurementLog& log);

  const Engine& engine_;
  SweepOptions options_;
  std::vector<Column> columns_;
  RopeScaling own_;         // the model's, with theta and original_ctx of the options
  SessionOptions session_;  // for own_
  TextCodec codec_;
  std::vector<int32_t> bos_;
  std::optional<TokenSource> text_;
  std::vector<std::string> notes_;
  std::optional<Pace> pace_;
};

}  // namespace lariat
