#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lariat {

// A group of processes ("ranks") that run one model; a group of one without MPI. Every rank makes the same
// calls in the same order, from its main thread. Throws Error if MPI reports a failure.
//
// After an error that other ranks do not have, a rank calls abort(), or lets an exception destroy the
// communicator and exits with a code other than 0: mpirun then ends the waiting ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  // 0 to size() - 1
  int size() const { return size_; }

  // Adds the `values` of all ranks in rank order: bitwise identical on all ranks, and in all runs of size()
  // ranks.
  virtual void all_reduce(std::span<float> values) = 0;
  // Writes the parts of all ranks to `all` in rank order; rank r has parts[r] bytes. `parts` is equal on all
  // ranks. `mine` may be this rank's place in `all`.
  virtual void all_gather(const void* mine, std::span<const size_t> parts, void* all) = 0;
  // The same on rank 0 only; other ranks ignore `all`.
  virtual void gather(const void* mine, std::span<const size_t> parts, void* all) = 0;
  // Copies `bytes` bytes from rank 0 to every rank.
  virtual void broadcast(void* data, size_t bytes) = 0;
  virtual void barrier() = 0;
  // Ends all ranks at once, waiting ones included. mpirun exits with this code.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_, size_;
};

// Longest message in bytes; MPI counts with int. Longer data travel in pieces.
constexpr size_t kMaxMessage = size_t{1} << 30;

// Whether this build can run one model on several processes.
bool has_mpi();

// Number of processes that the launcher started, from its variables; 1: a process started alone.
int launched_processes();
// "rank N: " in a process that a launcher started with others, else "".
std::string launched_rank();

// The ranks started by mpirun or srun. A group of one, without starting MPI (0.1 s), in a process started
// alone. The first communicator starts MPI, once per process, and its destructor ends MPI. Tests set a
// shorter message. Throws Error if the launcher belongs to another MPI than this build, or this build has
// none.
std::unique_ptr<Communicator> make_communicator(size_t max_message = kMaxMessage);

// The same, or null for a process that was started alone. Only in a build with MPI.
std::unique_ptr<Communicator> make_mpi_communicator(size_t max_message);

}  // namespace lariat
