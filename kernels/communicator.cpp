#include "kernels/communicator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/error.h"

namespace lariat {
namespace {

class SingleProcess : public Communicator {
 public:
  SingleProcess() : Communicator(0, 1) {}

  void all_reduce(std::span<float> /*values*/) override {}
  void all_gather(const void* mine, std::span<const size_t> parts, void* all) override {
    if (parts[0] > 0) std::memmove(all, mine, parts[0]);
  }
  void gather(const void* mine, std::span<const size_t> parts, void* all) override {
    all_gather(mine, parts, all);
  }
  void broadcast(void* /*data*/, size_t /*bytes*/) override {}
  void barrier() override {}
  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }
};

}  // namespace

#ifdef LARIAT_MPI
bool has_mpi() { return true; }
#else
bool has_mpi() { return false; }
#endif

// Open MPI's mpirun; MPICH, Intel MPI and srun with PMI; srun with PMIx.
int launched_processes() {
  const bool pmix = std::getenv("PMIX_RANK") != nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", pmix ? "SLURM_NTASKS" : "PMI_SIZE"}) {
    if (const char* number = std::getenv(name)) return std::atoi(number);
  }
  return 1;
}

std::string launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    const char* const number = std::getenv(name);
    if (number != nullptr && launched_processes() > 1) return "rank " + std::string(number) + ": ";
  }
  return "";
}

std::unique_ptr<Communicator> make_communicator([[maybe_unused]] size_t max_message) {
#ifdef LARIAT_MPI
  if (auto ranks = make_mpi_communicator(max_message)) return ranks;
#else
  if (const int n = launched_processes(); n > 1)  // each would repeat the whole command and write its files
    throw Error("mpirun: started " + std::to_string(n) +
                " processes, but this build has no MPI; install MPI and build again, or start one process");
#endif
  return std::make_unique<SingleProcess>();
}

}  // namespace lariat
