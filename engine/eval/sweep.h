#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/eval/estimate.h"
#include "engine/eval/passkey.h"
#include "engine/eval/perplexity.h"
#include "engine/eval/sweep_log.h"
#include "engine/session.h"
#include "models/rope_config.h"
#include "models/text/tokenizer.h"

namespace lariat {

// Which part of a work this process does.
struct Shard {
  int64_t index = 0, count = 1;
  std::string source;  // the environment variables that say so, if any
};

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const char*)>;
std::optional<std::string> process_environment(const char* name);

// Of "i/n", i from 0 to n - 1; unset for any other text.
std::optional<Shard> parse_shard(const std::string& text);

// Of the environment that launchers set, the first that is there:
//   mpirun (Open MPI)            OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   mpirun, mpiexec (PMI)        PMI_RANK, PMI_SIZE
//   Slurm job array              SLURM_ARRAY_TASK_ID, _MIN, _COUNT (ids one apart)
//   srun                         SLURM_PROCID, SLURM_NTASKS
// One process of one is not a shard. Throws Error when a variable is not a number in its range.
Shard shard_of_environment(const Environment& environment);

struct SweepOptions {
  std::vector<std::string> scalings = {"none", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn"};
  std::vector<int64_t> lengths;  // empty: 1, 2 and 4 times the model's original length
  // factor, original_ctx and theta; scaling and config are not used.
  RopeOptions rope;
  bool growing = true, perplexity = true, passkey = true, speed = true;  // what to measure
  std::filesystem::path text;  // for growing and perplexity; empty: neither is measured
  PerplexityMethod method = PerplexityMethod::kSliding;
  int64_t stride = 256, growing_step = 32, max_tokens = 8192;
  PasskeyOptions passkeys;  // depths, trials, seed
  int64_t shard_index = 0, shard_count = 1;
  double budget = 0;  // seconds that a run may take; 0: as many as it needs
  const std::atomic<bool>* interrupted = nullptr;
};

// One measurement of a sweep; a passkey unit makes one record per depth.
struct SweepUnit {
  enum class Kind { kGrowing, kPasskey, kPerplexity, kSpeed };
  Kind kind;
  std::string scaling;  // growing: a column (sweep_log.h)
  int64_t length;
  bool operator==(const SweepUnit&) const = default;
};
std::string_view name_of(SweepUnit::Kind kind);

// What a header promises, the most telling first: the growing contexts, then by falling length the passkeys
// and the perplexities, then speeds; all scalings of one before the next.
std::vector<SweepUnit> all_units(const nlohmann::ordered_json& header);
// The beginning of a unit's records.
nlohmann::ordered_json new_record(const SweepUnit& unit);
// Whether a log with these keys has all records of a unit.
bool holds(const std::set<std::string>& keys, const SweepUnit& unit, const std::vector<double>& depths);
// Those of the units that a log lacks; whether it holds all that its header promises, of all shards.
std::vector<SweepUnit> missing_units(const SweepRecords& log, std::vector<SweepUnit> units);
inline bool is_complete(const SweepRecords& log) { return missing_units(log, all_units(log.header)).empty(); }

inline constexpr int64_t kSpeedSteps = 32;  // decoded by a speed unit

// What shards are planned with, the same on every machine: in tokens of a long prompt.
inline constexpr int64_t kPlanChunk = 512;
inline constexpr WorkRate kPlanRate{.pass = 20, .token = 1, .position = 1.0 / 8192, .logits = 0.2};

// What is left to do of a sweep, this shard's part.
struct SweepEstimate {
  int64_t units = 0;
  double tokens = 0, seconds = 0;  // tokens: through the model
  double cache_bytes = 0;          // of all KV caches at a time, at most
};

// Where a sweep stands: what runs now, and the share of the whole work that is done.
struct SweepProgress {
  const SweepUnit& unit;
  double done;
};

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
  // session_options: of a session whose `rope` is the scaling given; each cell opens its own.
  Sweep(const Model& model, Backend& backend, const Tokenizer& tokenizer,
        std::function<SessionOptions(const RopeScaling&)> session_options, const SweepOptions& options);

  const SweepOptions& options() const { return options_; }  // with the lengths filled in
  // Identifies the sweep: the first line of its log.
  nlohmann::ordered_json header() const;
  RopeScaling scaling_for(const std::string& name, int64_t length) const;

  // Throws Error before hours are spent: a length beyond memory, a text too short for the longest window, a
  // passkey length without room for the prompt, a scaling that this model cannot have.
  void check();

  // All units of this shard, the expensive ones spread evenly, in the order in which they run.
  std::vector<SweepUnit> units() const;
  // How fast the work goes here, for estimates and the budget; until it is said, kPlanRate.
  void set_rate(const WorkRate& rate) { rate_ = rate; }
  WorkRate probe() const;  // measure_rate, of this model as it is
  SweepEstimate estimate(const SweepRecords& log) const;
  // Measures what is not in the log yet. Leaves out each unit that would not end within the budget. False
  // when it was interrupted.
  bool run(SweepLog& log, const std::function<void(const SweepProgress&)>& progress);

 private:
  nlohmann::ordered_json plan() const;
  std::vector<Work> work_of(const SweepUnit& unit, int64_t prefill_chunk) const;
  std::vector<bool> to_measure(const std::vector<SweepUnit>& units, const SweepRecords& log) const;
  int64_t contexts_at_once(const SweepUnit& unit) const;
  bool run_unit(const SweepUnit& unit, SweepLog& log, double left,
                const std::function<void(double)>& progress);
  bool copy_equal(const SweepUnit& unit, SweepLog& log) const;
  bool equal(const SweepUnit& unit, const std::string& other) const;
  bool same_frequencies(const SweepUnit& unit, const std::string& other) const;
  bool run_growing(const SweepUnit& unit, Session& session, SweepLog& log,
                   const std::function<void(double)>& progress);
  bool run_perplexity(const SweepUnit& unit, Session& session, SweepLog& log,
                      const std::function<void(double)>& progress);
  bool run_passkey(const SweepUnit& unit, Session& session, SweepLog& log,
                   const std::function<void(double)>& progress);
  void run_speed(const SweepUnit& unit, Session& session, SweepLog& log);

  const Model& model_;
  Backend& backend_;
  std::function<SessionOptions(const RopeScaling&)> session_options_;
  SweepOptions options_;
  RopeScaling own_;         // the model's, with the theta and original_ctx of the options
  SessionOptions session_;  // of own_
  WorkRate rate_ = kPlanRate;
  int64_t text_tokens_ = 0;  // of the part that is read, as far as check() could tell
  TextCodec codec_;
  Tokenizer tokenizer_;
  std::optional<int32_t> bos_;
};

}  // namespace lariat
