#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lariat {

// Which part of a work this process does.
struct Shard {
  int64_t index = 0, count = 1;
  std::string source;  // where that stands: an option or environment variables; empty: nowhere
};

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const char*)>;
std::optional<std::string> process_environment(const char* name);

// Of "i/n", i from 0 to n - 1. Throws UsageError.
Shard parse_shard(const std::string& text);

// Of the environment that launchers set, the first that is there:
//   mpirun (Open MPI)            OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   mpirun, mpiexec (PMI)        PMI_RANK, PMI_SIZE
//   Slurm job array              SLURM_ARRAY_TASK_ID, _MIN, _COUNT (ids one apart)
//   srun                         SLURM_PROCID, SLURM_NTASKS
// One process of one is not a shard. Throws Error when a variable is not a number in its range.
Shard shard_of_environment(const Environment& environment);

}  // namespace lariat
