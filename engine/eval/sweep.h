#pragma once
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/passkey.h"
#include "engine/eval/perplexity.h"
#include "engine/eval/sweep_log.h"
#include "engine/lariat.h"

namespace lariat {

struct SweepOptions {
  std::vector<std::string> scalings = {"none", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn"};
  std::vector<int64_t> lengths;  // empty: 1, 2 and 4 times the model's original length
  // factor, original_ctx and theta; scaling and config are not used.
  RopeOptions rope;
  bool growing = true, perplexity = true, passkey = true, speed = true;  // the measurements to make
  std::filesystem::path text;  // for growing and perplexity; empty: neither is measured
  PerplexityMethod method = PerplexityMethod::kSliding;
  int64_t stride = 256, growing_step = 32, max_tokens = 8192;
  PasskeyOptions passkeys;                   // needles, hay, depths, trials, seed
  int64_t shard_index = 0, shard_count = 1;  // the part of the whole that is measured here
  const std::atomic<bool>* interrupted = nullptr;
};

// One measurement of a sweep; a passkey unit makes one record per depth.
struct SweepUnit {
  std::string kind;     // growing, passkey, perplexity or speed
  std::string scaling;  // growing: a column (sweep_log.h)
  int64_t length;
  bool operator==(const SweepUnit&) const = default;
  nlohmann::ordered_json record() const;  // the beginning of its records
};

// The units that a header promises, the most telling first: the growing contexts, then by falling length the
// passkeys and the perplexities, then speeds; all scalings of one before the next.
std::vector<SweepUnit> all_units(const nlohmann::ordered_json& header);
// The whole of a passkey's record but for its timing.
nlohmann::ordered_json passkey_record(const std::string& scaling, const PasskeyCell& cell, NeedleTask task);
// Sorts lengths or depths; each stays once.
template <class T>
void sort_unique(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}
// The units of `units` that a log lacks; a complete log lacks none that its header promises, of all shards.
std::vector<SweepUnit> missing_units(const SweepRecords& log, std::vector<SweepUnit> units);
inline bool is_complete(const SweepRecords& log) { return missing_units(log, all_units(log.header)).empty(); }

inline constexpr int64_t kSpeedSteps = 32;  // decoded by a speed unit

// Says where a sweep stands: the unit that runs now, and the share that is done of what was left to do,
// weighed by the lengths.
using SweepProgressFn = std::function<void(const SweepUnit& unit, double done)>;

// Scalings x lengths over one model and one text: growing contexts, perplexity, passkey, speed and memory.
//
// A growing context is measured once for each column, up to the longest length: its positions cover the
// shorter ones. A static scaling has the factor of that length, as whoever deploys it must choose one. A
// scaling that follows the length has a second column, " stale", unless all caches of the sweep are.
//
// The scaling of a cell: `none` is the model without any, whatever its config says; `model` is what its
// config says. linear, ntk, yarn, llama3 and proportional are static and get the factor length / L0 (1 when
// that is less), or the fixed options.rope.factor; dynamic gets factor 2 or the fixed one, dynamic-yarn none
// or the fixed one: they follow the length by themselves. L0 is the same for all.
//
// Every trial, text and length is the same for every scaling, so cells may be compared one to one.
class Sweep {
 public:
  Sweep(const Engine& engine, const SweepOptions& options);  // the engine has a tokenizer, and outlives it

  const SweepOptions& options() const { return options_; }  // with the lengths filled in
  // Identifies the sweep: the first line of its log.
  nlohmann::ordered_json header() const;
  RopeScaling scaling_for(const std::string& name, int64_t length) const;

  // Throws Error before hours are spent: a length beyond memory, a text too short for the longest window, a
  // passkey length without room for the prompt, a scaling that this model cannot have.
  void check();

  // All units of this shard, in the order in which they run. Shards take turns, so that each gets its part of
  // every length.
  std::vector<SweepUnit> units() const;
  // Measures what is not in the log yet. False when it was interrupted.
  bool run(SweepLog& log, const SweepProgressFn& progress);

 private:
  nlohmann::ordered_json plan() const;
  const TokenSource& text();  // of options_.text, read when first asked for
  using ProgressFn = std::function<void(double done)>;
  bool run_unit(const SweepUnit& unit, SweepLog& log, const ProgressFn& progress);
  bool copy_equal(const SweepUnit& unit, SweepLog& log) const;
  bool same_frequencies(const SweepUnit& unit, const std::string& other) const;
  bool run_losses(const SweepUnit& unit, Session& session, SweepLog& log, const ProgressFn& progress);
  bool run_passkey(const SweepUnit& unit, Session& session, SweepLog& log, const ProgressFn& progress);
  void run_speed(const SweepUnit& unit, Session& session, SweepLog& log);

  const Engine& engine_;
  SweepOptions options_;
  RopeScaling own_;         // the model's, with the theta and original_ctx of the options
  SessionOptions session_;  // of own_
  TextCodec codec_;
  std::optional<int32_t> bos_;
  std::optional<TokenSource> text_;
};

}  // namespace lariat
