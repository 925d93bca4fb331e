#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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
  bool perplexity = true, passkey = true, speed = true;  // what to measure
  std::filesystem::path text;                            // for perplexity; empty: none is measured
  PerplexityMethod method = PerplexityMethod::kSliding;
  int64_t stride = 256, max_tokens = 8192;
  PasskeyOptions passkeys;  // depths, trials, seed
  int64_t shard_index = 0, shard_count = 1;
  const std::atomic<bool>* interrupted = nullptr;
};

// One measurement of a sweep; a passkey unit makes one record per depth.
struct SweepUnit {
  enum class Kind { kPerplexity, kPasskey, kSpeed };
  Kind kind;
  std::string scaling;
  int64_t length;
};
std::string_view name_of(SweepUnit::Kind kind);

// Where a sweep stands: what runs now, and the share of the whole work that is done.
struct SweepProgress {
  const SweepUnit& unit;
  double done;
};

// Scalings x lengths over one model and one text: perplexity, passkey, speed and memory.
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
  // Measures what is not in the log yet. False when it was interrupted.
  bool run(SweepLog& log, const std::function<void(const SweepProgress&)>& progress);

 private:
  double cost(const SweepUnit& unit) const;
  bool run_unit(const SweepUnit& unit, SweepLog& log, const std::function<void(double)>& progress);
  bool copy_equal(const SweepUnit& unit, SweepLog& log) const;
  bool same_frequencies(const SweepUnit& unit, const std::string& other) const;
  bool run_perplexity(const SweepUnit& unit, Session& session, SweepLog& log,
                      const std::function<void(double)>& progress);
  bool run_passkey(const SweepUnit& unit, Session& session, SweepLog& log,
                   const std::function<void(double)>& progress);
  void run_speed(const SweepUnit& unit, Session& session, SweepLog& log);

  const Model& model_;
  Backend& backend_;
  std::function<SessionOptions(const RopeScaling&)> session_options_;
  SweepOptions options_;
  RopeScaling own_;  // the model's, with the theta and original_ctx of the options
  TextCodec codec_;
  Tokenizer tokenizer_;
  std::optional<int32_t> bos_;
};

// Whether a log holds everything that its header promises for its shards 0 ... count - 1.
bool is_complete(const SweepRecords& log);

}  // namespace lariat
