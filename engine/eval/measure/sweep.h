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
  // Names of columns. Empty: none, linear, ntk, dynamic, yarn and dynamic-yarn, or of a model without
  // RoPE none alone.
  std::vector<std::string> scalings;
  // Empty: 1, 2 and 4 times the model's original length, as far as text and memory reach.
  std::vector<int64_t> lengths;
  // factor, original_ctx and theta; scaling and config are not used.
  RopeOptions rope;
  bool growing = true, perplexity = true, passkey = true, speed = true;  // the measurements to make
  std::filesystem::path text;  // for growing and perplexity; empty: neither is measured
  PerplexityMethod method = PerplexityMethod::kSliding;
  int64_t stride = 0;                   // of sliding windows; 0: see Sweep::stride_of
  int64_t growing_step = 0;             // 0: default_step()
  std::optional<int64_t> max_tokens{};  // of the text, 0: all; unset: what the longest window holds, or 8192
  // A first look: no passkeys, no speed, no more of the text than the longest window, windows that overlap by
  // half.
  bool quick = false;
  PasskeyOptions passkeys;                   // needles, hay, depths, trials, seed
  int64_t shard_index = 0, shard_count = 1;  // the part of the whole that is measured here
  std::function<void(const nlohmann::ordered_json&)> on_losses{};  // a line with the loss of each token
  const std::atomic<bool>* interrupted = nullptr;
};

Plan::Passkey passkey_plan(const PasskeyOptions& options);
// The record of a passkey cell, without its timing.
Record passkey_record(const Column& column, const PasskeyCell& cell, NeedleTask task);

inline constexpr int64_t kSpeedSteps = 32;  // decoded by a speed unit

// Where a sweep stands: the unit that runs now, how many are behind it of those that were left to do, and the
// share of the time that they take.
struct SweepProgress {
  const Unit& unit;
  size_t finished, units;
  double done;
};
using SweepProgressFn = std::function<void(const SweepProgress&)>;

// Seconds for reading a token, for a pair of one and a token before it (attention), and for a step of
// decoding.
struct Pace {
  double token = 1, pair = 0, step = 0;
  double reading(double from, double to) const {  // tokens at these positions
    return (to - from) * token + (to * to - from * from) / 2 * pair;
  }
};
// Reads some tokens, up to `longest`, for about two seconds. A model too slow for more than a few shows
// little of its attention: that is taken to be as fast as the products with weights.
Pace measure_pace(Session& session, int64_t longest);
std::vector<int32_t> some_tokens(int64_t n, int64_t vocab);  // any, the same every time

// Scalings x lengths over one model and one text: growing contexts, perplexity, passkey, speed and memory.
//
// A growing context is measured once for each column, up to the longest length: its positions cover the
// shorter ones. A static scaling has the factor of that length, as whoever deploys it must choose one. A
// scaling that follows the length has a second column, stale, unless all caches of the sweep are.
//
// The scaling of a cell: `none` is the model without any, whatever its config says; `model` is what its
// config says. linear, ntk, yarn, llama3 and proportional are static and get the factor length / L0 (1 when
// that is less), or the fixed options.rope.factor; dynamic gets factor 2 or the fixed one, dynamic-yarn none
// or the fixed one: they follow the length by themselves. L0 is the same for all. A position method reaches
// for the longest length everywhere; its values stand in the header.
//
// Every trial, text and length is the same for every scaling, so cells may be compared one to one. Losses
// stand in the log as sums of consecutive tokens too ("blocks"), which differ by column and not by text
// (verdict.h).
class Sweep {
 public:
  Sweep(const Engine& engine, const SweepOptions& options);  // the engine has a tokenizer, and outlives it

  const SweepOptions& options() const { return options_; }  // with what was left open filled in
  // A line for each thing that was left open and is less than one might expect.
  const std::vector<std::string>& notes() const { return notes_; }
  const TokenSource* text() const { return text_ ? &*text_ : nullptr; }  // as far as it is used
  // By how much windows move: an eighth of their length (half, for a first look), at least 256 tokens.
  int64_t stride_of(int64_t length) const;
  const std::vector<Column>& columns() const { return columns_; }
  Plan plan() const;  // the first line of its log
  RopeScaling scaling_for(const Column& column, int64_t length) const;
  PositionMethod method_for(const Column& column) const;

  // Throws Error before hours are spent: a length beyond memory, a text too short for the longest window, a
  // passkey length without room for the prompt, a scaling that this model cannot have.
  void check();

  // All units of this shard, in the order in which they run. Shards take turns, so that each gets its part of
  // every length.
  std::vector<Unit> units() const;
  // How fast this model is here, found when first asked for (measure_pace).
  const Pace& pace();
  void set_pace(const Pace& pace) { pace_ = pace; }
  // The seconds that each unit takes, in order; 0: the result of another is copied. And those of the units
  // that a log lacks, by kind.
  std::vector<double> seconds_for(const std::vector<Unit>& left, const Measurements& log) const;
  std::map<Kind, double> seconds_left(const Measurements& log) const;
  // Measures what is not in the log yet. False when it was interrupted.
  bool run(MeasurementLog& log, const SweepProgressFn& progress);

 private:
  void fill_in();
  // The longest sequence: a prompt and what is decoded after it.
  int64_t most_tokens() const {
    return options_.lengths.back() + std::max<int64_t>(kSpeedSteps, options_.passkeys.max_new_tokens);
  }
  void drop_long_lengths();
  // A window moves by this part of its length.
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
  RopeScaling own_;         // the model's, with the theta and original_ctx of the options
  SessionOptions session_;  // of own_
  TextCodec codec_;
  std::vector<int32_t> bos_;
  std::optional<TokenSource> text_;
  std::vector<std::string> notes_;
  std::optional<Pace> pace_;
};

}  // namespace lariat
