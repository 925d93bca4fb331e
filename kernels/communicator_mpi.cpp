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
// Values per piece of a large sum: bounds the memory for the slices of other ranks.
constexpr size_t kSumPiece = size_t{1} << 22;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(std::string(call) + ": " + std::string(text, static_cast<size_t>(length)));
}

// sum[i] = parts[0][i] + parts[1][i] + ..., added in this order. `parts` holds n_parts arrays of sum.size()
// values.
void sum_in_order(const float* parts, int n_parts, std::span<float> sum) {
  constexpr size_t kBlock = 2048;  // remains in the L1 cache
  for (size_t first = 0; first < sum.size(); first += kBlock) {
    const size_t n = std::min(kBlock, sum.size() - first);
    float* out = sum.data() + first;
    std::copy_n(parts + first, n, out);
    for (int r = 1; r < n_parts; ++r) {
      const float* part = parts + static_cast<size_t>(r) * sum.size() + first;
      for (size_t i = 0; i < n; ++i) out[i] += part[i];
    }
  }
}

class MpiRanks : public Communicator {
 public:
  MpiRanks(int rank, int size, size_t max_message, bool owns_mpi)
      : Communicator(rank, size),
        max_message_(max_message),
        sum_piece_(std::min(kSumPiece, std::max<size_t>(1, max_message / sizeof(float)))),
        owns_mpi_(owns_mpi),
        counts_(static_cast<size_t>(size)),
        starts_(static_cast<size_t>(size)) {}
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  // MPI_Finalize waits for all ranks, which may wait for this one: not after an error. mpirun ends the other
  // ranks when this process exits.
  ~MpiRanks() override {
    if (owns_mpi_ && std::uncaught_exceptions() == exceptions_) MPI_Finalize();
  }

  void all_reduce(std::span<float> values) override {
    for (size_t first = 0; first < values.size(); first += sum_piece_) {
      const auto piece = values.subspan(first, std::min(sum_piece_, values.size() - first));
      piece.size() <= kSmallSum ? small_sum(piece) : large_sum(piece);
    }
  }

  void all_gather(const void* mine, std::span<const size_t> parts, void* all) override {
    copy(mine, parts[me()], place_of(rank(), parts, all));
    if (std::accumulate(parts.begin(), parts.end(), size_t{0}) > max_message_) {
      for (int r = 0; r < size(); ++r)
        broadcast_from(r, place_of(r, parts, all), parts[static_cast<size_t>(r)]);
      return;
    }
    int start = 0;
    for (size_t r = 0; r < parts.size(); ++r) {
      counts_[r] = static_cast<int>(parts[r]);
      starts_[r] = start;
      start += counts_[r];
    }
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, counts_.data(), starts_.data(), MPI_BYTE,
                         MPI_COMM_WORLD),
          "MPI_Allgatherv");
  }

  void gather(const void* mine, std::span<const size_t> parts, void* all) override {
    if (rank() > 0) {
      in_pieces(const_cast<void*>(mine), parts[me()], [&](void* data, int bytes) {
        check(MPI_Send(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD), "MPI_Send");
      });
      return;
    }
    copy(mine, parts[0], all);
    for (int r = 1; r < size(); ++r) {
      in_pieces(place_of(r, parts, all), parts[static_cast<size_t>(r)], [&](void* data, int bytes) {
        check(MPI_Recv(data, bytes, MPI_BYTE, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
      });
    }
  }

  void broadcast(void* data, size_t bytes) override { broadcast_from(0, data, bytes); }
  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
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
    for (size_t first = 0; first < bytes; first += max_message_) {
      call(static_cast<char*>(data) + first, static_cast<int>(std::min(max_message_, bytes - first)));
    }
  }
  void broadcast_from(int root, void* data, size_t bytes) const {
    in_pieces(data, bytes, [&](void* piece, int n) {
      check(MPI_Bcast(piece, n, MPI_BYTE, root, MPI_COMM_WORLD), "MPI_Bcast");
    });
  }

  void small_sum(std::span<float> values) {
    const int n = static_cast<int>(values.size());
    others_.resize(std::max(others_.size(), values.size() * counts_.size()));
    check(MPI_Allgather(values.data(), n, MPI_FLOAT, others_.data(), n, MPI_FLOAT, MPI_COMM_WORLD),
          "MPI_Allgather");
    sum_in_order(others_.data(), size(), values);
  }

  // Rank r sums slice r of all ranks, then all ranks collect the slices.
  void large_sum(std::span<float> values) {
    const size_t ranks = counts_.size(), slice = (values.size() + ranks - 1) / ranks;
    for (size_t r = 0; r < ranks; ++r) {
      const size_t start = std::min(values.size(), r * slice);
      starts_[r] = static_cast<int>(start);
      counts_[r] = static_cast<int>(std::min(slice, values.size() - start));
    }
    const size_t mine = static_cast<size_t>(counts_[me()]);
    others_.resize(std::max(others_.size(), mine * ranks));
    received_.assign(ranks, counts_[me()]);
    places_.resize(ranks);
    for (size_t r = 0; r < ranks; ++r) places_[r] = static_cast<int>(r * mine);
    check(MPI_Alltoallv(values.data(), counts_.data(), starts_.data(), MPI_FLOAT, others_.data(),
                        received_.data(), places_.data(), MPI_FLOAT, MPI_COMM_WORLD),
          "MPI_Alltoallv");
    sum_in_order(others_.data(), size(), values.subspan(static_cast<size_t>(starts_[me()]), mine));
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, values.data(), counts_.data(), starts_.data(), MPI_FLOAT,
                         MPI_COMM_WORLD),
          "MPI_Allgatherv");
  }

  size_t max_message_, sum_piece_;
  bool owns_mpi_;
  int exceptions_ = std::uncaught_exceptions();
  std::vector<int> counts_, starts_, received_, places_;  // of each rank
  std::vector<float> others_;                             // values of all ranks
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(int size, size_t max_message) {
  int started = 0, level = 0, rank = 0, ranks = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  if (started == 0) {
    // Polling ranks let other threads have their core (Open MPI).
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  if (ranks != size) {
    throw Error("mpirun: started " + std::to_string(size) + " processes, but this build's MPI finds " +
                std::to_string(ranks) + "; use the mpirun of the MPI that lariat was built with");
  }
  return std::make_unique<MpiRanks>(rank, size, max_message, started == 0);
}

}  // namespace lariat
