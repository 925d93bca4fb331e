#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/communicator.h"

// The processes that run one command, started by mpirun (engine/runtime/ranks.h). Rank 0 has the input and
// the output; the others print nothing.
namespace lariat {

// Must live as long as main: starts MPI if mpirun started this process. Shards of a sweep (--shard) stay
// separate processes.
class CommandRanks {
 public:
  explicit CommandRanks(const std::vector<std::string>& words);
  CommandRanks(const CommandRanks&) = delete;
  CommandRanks& operator=(const CommandRanks&) = delete;
  ~CommandRanks();

 private:
  std::unique_ptr<Communicator> communicator_;
};

Communicator* ranks();  // of this command; null: one process

// Throws UsageError for an option that several processes do not support.
void check_options_of_ranks(const std::vector<std::string>& words);

// Repeats rank 0's calls on another rank.
struct Engine;
void follow_first_rank(const Engine& engine);

// Prints an error of this rank's command and ends all ranks, which may wait for this one.
void end_ranks(const std::string& what);

// Thrown on other ranks when rank 0 has ended its command.
struct Followed {};

}  // namespace lariat
