// The ranks of mpirun. Sums are local additions in rank order: the order of MPI_SUM is not specified.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// Up to this many values, every rank receives all values of all ranks (one message per rank pair); beyond, a
// rank sums one slice for all (two messages, 1/N of the additions).
constexpr size_t kSmallSum = 4096;
// Values per piece of a large sum: slices of other ranks remain in the cache.
constexpr size_t kSumPiece = size_t{1} << 18;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  int length = 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  MPI_Error_string(code, text, &length);
  throw Error(std::string(call) + ": " + text);
}

class MpiRanks : public Communicator {
 public:
  MpiRanks(int rank, int size, size_t max_message, bool owns_mpi)
      : Communicator(rank, size), ranks_(static_cast<size_t>(size)), max_(max_message), owns_mpi_(owns_mpi) {}

  // MPI_Finalize waits for all ranks, which may wait for this one: not after an error. mpirun ends the other
  // ranks when this process exits.
  ~MpiRanks() override {
    if (owns_mpi_ && std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  void all_reduce(std::span<float> values) override {
    const size_t longest = std::min(kSumPiece, max_ / sizeof(float));
    for (size_t first = 0; first < values.size(); first += longest) {
      const auto piece = values.subspan(first, std::min(longest, values.size() - first));
      piece.size() <= kSmallSum ? small_sum(piece) : large_sum(piece);
    }
  }

  void all_gather(const void* mine, std::span<const size_t> parts, void* all) override {
    copy(mine, parts[me()], place_of(rank(), parts, all));
    if (std::accumulate(parts.begin(), parts.end(), size_t{0}) > max_) {
      for (int r = 0; r < size(); ++r)
        broadcast_from(r, place_of(r, parts, all), parts[static_cast<size_t>(r)]);
      return;
    }
    counts_.assign(parts.begin(), parts.end());
    starts_.assign(ranks_, 0);
    std::partial_sum(counts_.begin(), counts_.end() - 1, starts_.begin() + 1);
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, counts_.data(), starts_.data(), MPI_BYTE, all_),
          "MPI_Allgatherv");
  }

  void gather(const void* mine, std::span<const size_t> parts, void* all) override {
    if (rank() == 0) copy(mine, parts[0], all);
    for (int r = 1; r < size(); ++r) {
      if (rank() != 0 && rank() != r) continue;
      void* data = rank() == 0 ? place_of(r, parts, all) : const_cast<void*>(mine);
      in_pieces(data, parts[static_cast<size_t>(r)], [&](void* piece, int n) {
        check(rank() > 0 ? MPI_Send(piece, n, MPI_BYTE, 0, 0, all_)
                         : MPI_Recv(piece, n, MPI_BYTE, r, 0, all_, MPI_STATUS_IGNORE),
              rank() > 0 ? "MPI_Send" : "MPI_Recv");
      });
    }
  }

  void broadcast(void* data, size_t bytes) override { broadcast_from(0, data, bytes); }
  void barrier() override { check(MPI_Barrier(all_), "MPI_Barrier"); }

  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    MPI_Abort(all_, exit_code);
    std::_Exit(exit_code);
  }

 private:
  size_t me() const { return static_cast<size_t>(rank()); }
  static void* place_of(int rank, std::span<const size_t> parts, void* all) {
    return static_cast<char*>(all) + std::accumulate(parts.begin(), parts.begin() + rank, size_t{0});
  }
  static void copy(const void* from, size_t bytes, void* to) {
    if (bytes > 0) std::memmove(to, from, bytes);
  }

  template <class Call>
  void in_pieces(void* data, size_t bytes, const Call& call) const {
    for (size_t first = 0; first < bytes; first += max_) {
      call(static_cast<char*>(data) + first, static_cast<int>(std::min(max_, bytes - first)));
    }
  }
  void broadcast_from(int root, void* data, size_t bytes) const {
    in_pieces(data, bytes,
              [&](void* piece, int n) { check(MPI_Bcast(piece, n, MPI_BYTE, root, all_), "MPI_Bcast"); });
  }

  void small_sum(std::span<float> values) {
    const int n = static_cast<int>(values.size());
    received_.resize(std::max(received_.size(), values.size() * ranks_));
    check(MPI_Allgather(values.data(), n, MPI_FLOAT, received_.data(), n, MPI_FLOAT, all_), "MPI_Allgather");
    sum_in_order(received_.data(), values);
  }

  // Rank r sums slice r of all ranks, then all ranks collect the slices. The remainder is a small sum.
  void large_sum(std::span<float> values) {
    const size_t slice = values.size() / ranks_, sliced = slice * ranks_;
    const int n = static_cast<int>(slice);
    received_.resize(std::max(received_.size(), sliced));
    check(MPI_Alltoall(values.data(), n, MPI_FLOAT, received_.data(), n, MPI_FLOAT, all_), "MPI_Alltoall");
    sum_in_order(received_.data(), values.subspan(me() * slice, slice));
    check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, values.data(), n, MPI_FLOAT, all_), "MPI_Allgather");
    if (sliced < values.size()) small_sum(values.subspan(sliced));
  }

  // sum[i] = parts[0][i] + parts[1][i] + ..., added in this order. Each rank's part has sum.size() values.
  void sum_in_order(const float* parts, std::span<float> sum) const {
    std::copy_n(parts, sum.size(), sum.begin());
    for (size_t r = 1; r < ranks_; ++r) {
      const float* part = parts + r * sum.size();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
  }

  MPI_Comm all_ = MPI_COMM_WORLD;
  size_t ranks_, max_;  // size(), and the longest message
  bool owns_mpi_;
  std::vector<int> counts_, starts_;  // of each rank
  std::vector<float> received_;       // from all ranks
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(size_t max_message) {
  const int launched = launched_processes();
  if (launched < 2) return nullptr;
  int started = 0, level = 0, rank = 0, size = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  if (started == 0) {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (size != launched) {
    throw Error("mpirun: started " + std::to_string(launched) + " processes, but MPI finds " +
                std::to_string(size) + "; use the mpirun of the MPI that lariat was built with");
  }
  return std::make_unique<MpiRanks>(rank, size, max_message, started == 0);
}

}  // namespace lariat
