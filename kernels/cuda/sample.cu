#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

// Tokens from logits: argmax, and top-k, top-p and multinomial sampling by radix select. Each of the three
// looks for the first token, in the order of falling logits, at which a running sum (of tokens or of weights)
// reaches a target. Nothing is sorted: as in a radix sort the sum is taken by digits of the logit, and only
// the digit in which the target lies is looked into further.
//
// Weights are integers, exp((logit - largest) / temperature) times a power of two such that the sum of a row
// fits into 62 bits: sums of integers do not depend on their order, so a draw is the same in every run. For
// 2^17 tokens one step of a weight is 2^-44 of the largest; what is rounded away of a row is less than 2^-27.
namespace lariat {
namespace {

using namespace cuda;

constexpr int32_t kNobody = INT32_MAX;  // the index of a candidate that nobody has met

// The larger of two logits, the one in front when they are equal. NaN loses every comparison.
struct Candidate {
  float value;
  int32_t index;

  __device__ void meet(float other_value, int32_t other_index) {
    if (other_value > value || (other_value == value && other_index < index)) {
      value = other_value;
      index = other_index;
    }
  }
};

__device__ __forceinline__ Candidate nobody() { return {-INFINITY, kNobody}; }

__device__ __forceinline__ Candidate warp_best(Candidate best) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const float value = __shfl_xor_sync(kFullWarp, best.value, lanes);
    const int32_t index = __shfl_xor_sync(kFullWarp, best.index, lanes);
    best.meet(value, index);
  }
  return best;
}

constexpr unsigned kArgmaxThreads = 256;
constexpr int64_t kColumnsPerBlock = 8192;

// Grid: rows by chunks of 8192 columns, so that one row of a large vocabulary keeps many multiprocessors
// busy. 256 threads; bound by memory. Writes one candidate per chunk.
__global__ void argmax_chunk_kernel(const float* logits, int64_t stride, int64_t cols, Candidate* chunks) {
  LARIAT_SHARED(Candidate, warps, kArgmaxThreads / kWarpSize);
  const float* row = logits + blockIdx.x * stride;
  const int64_t first = blockIdx.y * kColumnsPerBlock;
  const int64_t end = first + kColumnsPerBlock < cols ? first + kColumnsPerBlock : cols;
  Candidate best = nobody();
  for (int64_t i = first + threadIdx.x; i < end; i += kArgmaxThreads)
    best.meet(row[i], static_cast<int32_t>(i));
  best = warp_best(best);
  const int warp = warp_index(), lane = lane_index();
  if (lane == 0) warps[warp] = best;
  __syncthreads();
  if (warp != 0) return;
  best = lane < static_cast<int>(kArgmaxThreads) / kWarpSize ? warps[lane] : nobody();
  best = warp_best(best);
  if (lane == 0) chunks[int64_t{blockIdx.x} * gridDim.y + blockIdx.y] = best;
}

// Grid: one warp per row meets the row's chunks.
__global__ void argmax_row_kernel(const Candidate* chunks, int64_t n_chunks, Candidate* rows) {
  const Candidate* row = chunks + blockIdx.x * n_chunks;
  Candidate best = nobody();
  for (int64_t i = threadIdx.x; i < n_chunks; i += kWarpSize) best.meet(row[i].value, row[i].index);
  best = warp_best(best);
  if (threadIdx.x == 0) rows[blockIdx.x] = best;
}

int64_t chunks_per_row(const Matrix& logits) { return ceil_div(logits.cols, kColumnsPerBlock); }

size_t argmax_chunks(const Matrix& logits) {
  return static_cast<size_t>(logits.rows * chunks_per_row(logits));
}

// best[t] = the largest of row t, or kNobody of a row of NaN. chunks: argmax_chunks(logits) candidates.
void launch_argmax(const Matrix& logits, Candidate* chunks, Candidate* best, Stream stream) {
  const int64_t n_chunks = chunks_per_row(logits);
  launch(argmax_chunk_kernel, dim3(to_unsigned(logits.rows), to_unsigned(n_chunks)), dim3(kArgmaxThreads), 0,
         stream, typed<float>(logits), logits.stride, logits.cols, chunks);
  launch(argmax_row_kernel, dim3(to_unsigned(logits.rows)), dim3(kWarpSize), 0, stream, chunks, n_chunks,
         best);
}

using Amount = unsigned long long;  // a number of tokens or a sum of weights, as atomicAdd knows it

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWeightThreads = 256;
constexpr int kDigits = 256;
constexpr int kLevels = 5;  // a coarse one, and the four bytes of the order's key
constexpr int kRowsPerLaunch = 64;
using Uniforms = ByValue<double, kRowsPerLaunch>;

struct DrawArgs {
  const float* logits;
  int64_t stride, cols;
  const Candidate* best;
  const Amount* weights;  // [rows][cols]
  Sampling how;
  double one;  // the weight of the largest logit
  int32_t* ids;
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) < INFINITY; }

// Rises when the logit falls; -0 and 0 are equal.
__device__ __forceinline__ uint32_t order_key(float logit) {
  const uint32_t bits = float_bits(logit + 0.0F);
  return (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffU;
}

// A row, and which of its tokens are still in play: those up to and with `last_id`, in the order, of a weight
// of `least` or more.
struct Row {
  const float* logits;
  const Amount* weights;
  int64_t cols;
  float largest, steps_per_unit;
  float last_logit = -INFINITY;
  int32_t last_id = kNobody;
  Amount least = 0;

  __device__ bool kept(int64_t i) const {
    const float x = logits[i];
    if (!finite(x) || weights[i] < least) return false;
    return x > last_logit || (x == last_logit && i <= last_id);
  }
  __device__ Amount amount(int64_t i, bool by_weight) const { return by_weight ? weights[i] : 1; }

  // The coarse digit spreads the likely tokens over many bins, where the key's first byte would have them all
  // in a few; it never falls when the logit falls, so it may come before the key.
  __device__ unsigned digit(float x, int level) const {
    if (level > 0) return order_key(x) >> (8 * (kLevels - 1 - level)) & 0xffU;
    const float steps = (largest - x) * steps_per_unit;
    return steps < static_cast<float>(kDigits - 1) ? static_cast<unsigned>(steps) : kDigits - 1;
  }
};

// The digits that have been found so far.
struct Prefix {
  unsigned coarse = 0;
  uint32_t key = 0;
  int level = 0;

  __device__ bool matches(const Row& row, float x) const {
    if (level == 0) return true;
    if (row.digit(x, 0) != coarse) return false;
    return level == 1 || order_key(x) >> (8 * (kLevels - level)) == key;
  }
  __device__ void add(unsigned digit) {
    if (level == 0) {
      coarse = digit;
    } else {
      key = key << 8 | digit;
    }
    ++level;
  }
};

struct Found {
  unsigned digit;
  int32_t id;
  Amount before;
};

// Shared memory of a draw.
struct Board {
  Amount bins[kDigits];
  Amount partial[kWarpSize];
  Found found;
};

// The sum of x over the threads in front of this one.
__device__ Amount block_prefix(Amount x, Amount* partial) {
  const unsigned warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  Amount sum = x;
#pragma unroll
  for (unsigned by = 1; by < kWarpSize; by *= 2) {
    const Amount other = __shfl_up_sync(kFullWarp, sum, by);
    if (lane >= by) sum += other;
  }
  if (lane == kWarpSize - 1) partial[warp] = sum;
  __syncthreads();
  for (unsigned w = 0; w < warp; ++w) sum += partial[w];
  __syncthreads();
  return sum - x;
}

__device__ Amount sum_of_kept(const Row& row, bool by_weight, Board& board) {
  Amount sum = 0;
  for (int64_t i = threadIdx.x; i < row.cols; i += blockDim.x) {
    if (row.kept(i)) sum += row.amount(i, by_weight);
  }
  return block_sum(sum, board.partial);
}

// The digit in which the running sum reaches `target`, and what lies before it. By the whole block.
__device__ void find_digit(const Row& row, const Prefix& prefix, bool by_weight, Amount target,
                           Board& board) {
  if (threadIdx.x < kDigits) board.bins[threadIdx.x] = 0;
  __syncthreads();
  Amount rest = 0;  // the last bin's, where unlikely tokens would queue for one word
  for (int64_t i = threadIdx.x; i < row.cols; i += blockDim.x) {
    if (!row.kept(i) || !prefix.matches(row, row.logits[i])) continue;
    const Amount amount = row.amount(i, by_weight);
    const unsigned digit = row.digit(row.logits[i], prefix.level);
    if (digit == kDigits - 1) {
      rest += amount;
    } else if (amount > 0) {
      atomicAdd(&board.bins[digit], amount);
    }
  }
  if (rest > 0) atomicAdd(&board.bins[kDigits - 1], rest);
  __syncthreads();
  const Amount mine = threadIdx.x < kDigits ? board.bins[threadIdx.x] : 0;
  const Amount before = block_prefix(mine, board.partial);
  if (before < target && target <= before + mine) board.found = {threadIdx.x, 0, before};
  __syncthreads();
}

// The token at which the running sum over what is kept reaches `target`, which is at least 1 and at most the
// whole sum. By the whole block.
__device__ int32_t walk(const Row& row, bool by_weight, Amount target, Board& board) {
  Prefix prefix;
  while (prefix.level < kLevels) {
    find_digit(row, prefix, by_weight, target, board);
    prefix.add(board.found.digit);
    target -= board.found.before;
    __syncthreads();
  }
  // Those left are equal: by id, a run of ids per thread.
  const int64_t share = ceil_div<int64_t>(row.cols, blockDim.x);
  const int64_t first = threadIdx.x * share;
  const int64_t end = first + share < row.cols ? first + share : row.cols;
  const auto amount_at = [&](int64_t i) -> Amount {
    return row.kept(i) && prefix.matches(row, row.logits[i]) ? row.amount(i, by_weight) : 0;
  };
  Amount mine = 0;
  for (int64_t i = first; i < end; ++i) mine += amount_at(i);
  Amount reached = block_prefix(mine, board.partial);
  if (reached < target && target <= reached + mine) {
    int64_t i = first;
    for (reached += amount_at(i); reached < target; reached += amount_at(i)) ++i;
    board.found.id = static_cast<int32_t>(i);
  }
  __syncthreads();
  const int32_t id = board.found.id;
  __syncthreads();
  return id;
}

__device__ void keep_up_to(Row& row, int32_t id) {
  row.last_id = id;
  row.last_logit = row.logits[id];
}

// Grid: rows by chunks of 256 columns. Bound by arithmetic in double.
__global__ void weights_kernel(const float* logits, int64_t stride, int64_t cols, const Candidate* best,
                               double temperature, double one, Amount* weights) {
  const int64_t i = int64_t{blockIdx.y} * kWeightThreads + threadIdx.x;
  if (i >= cols) return;
  const float x = logits[blockIdx.x * stride + i], largest = best[blockIdx.x].value;
  double weight = 0.0;
  if (finite(x) && finite(largest)) {
    weight = one * exp((static_cast<double>(x) - static_cast<double>(largest)) / temperature);
  }
  weights[blockIdx.x * cols + i] = static_cast<Amount>(weight + 0.5);
}

// Grid: one block of 256 threads or, for long rows, 1024 per row, which reads the row some six times per cut,
// from L2. Bound by what one multiprocessor reads.
__global__ void __launch_bounds__(kMaxThreads)
    draw_kernel(const DrawArgs a, const __grid_constant__ Uniforms uniforms) {
  LARIAT_SHARED(Board, boards, 1);
  Board& board = boards[0];
  const float largest = a.best[blockIdx.x].value;
  if (!finite(largest)) {
    if (threadIdx.x == 0) a.ids[blockIdx.x] = -1;
    return;
  }
  Row row = {a.logits + blockIdx.x * a.stride, a.weights + blockIdx.x * a.cols, a.cols, largest,
             8.0F / a.how.temperature};
  if (a.how.top_k > 0 && static_cast<Amount>(a.how.top_k) < sum_of_kept(row, false, board)) {
    keep_up_to(row, walk(row, false, static_cast<Amount>(a.how.top_k), board));
  }
  if (a.how.top_p < 1.0F) {
    const Amount sum = sum_of_kept(row, true, board);
    const auto wanted =
        static_cast<Amount>(ceil(static_cast<double>(a.how.top_p) * static_cast<double>(sum)));
    keep_up_to(row, walk(row, true, wanted < 1 ? 1 : wanted < sum ? wanted : sum, board));
  }
  row.least = static_cast<Amount>(ceil(static_cast<double>(a.how.min_p) * a.one));
  const Amount sum = sum_of_kept(row, true, board);
  const auto target = static_cast<Amount>(uniforms.value[blockIdx.x] * static_cast<double>(sum));
  const int32_t id = walk(row, true, target < sum ? target + 1 : sum, board);
  if (threadIdx.x == 0) a.ids[blockIdx.x] = id;
}

}  // namespace

void CudaBackend::argmax(const Matrix& logits, std::span<int32_t> ids) {
  const size_t n_chunks = argmax_chunks(logits);
  std::vector<Candidate> best(static_cast<size_t>(logits.rows));
  auto* chunks =
      static_cast<Candidate*>(scratch(Scratch::kResult, (n_chunks + best.size()) * sizeof(Candidate)));
  launch_argmax(logits, chunks, chunks + n_chunks, stream());
  copy_out(best.data(), chunks + n_chunks, best.size() * sizeof(Candidate));
  for (size_t i = 0; i < best.size(); ++i) ids[i] = best[i].index == kNobody ? 0 : best[i].index;
}

void CudaBackend::sample(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
                         std::span<int32_t> ids) {
  const auto rows = static_cast<size_t>(logits.rows), cols = static_cast<size_t>(logits.cols);
  const bool greedy = how.temperature <= 0.0F;
  const size_t weight_bytes = greedy ? 0 : rows * cols * sizeof(Amount);
  const size_t candidates = argmax_chunks(logits) + rows;
  auto* memory = static_cast<char*>(
      scratch(Scratch::kResult, weight_bytes + candidates * sizeof(Candidate) + rows * sizeof(int32_t)));
  auto* weights = reinterpret_cast<Amount*>(memory);
  auto* best = reinterpret_cast<Candidate*>(memory + weight_bytes);
  Candidate* chunks = best + rows;
  launch_argmax(logits, chunks, best, stream());
  if (greedy) {
    std::vector<Candidate> found(rows);
    copy_out(found.data(), best, rows * sizeof(Candidate));
    for (size_t i = 0; i < rows; ++i) ids[i] = std::isfinite(found[i].value) ? found[i].index : -1;
    return;
  }
  const double one = std::ldexp(1.0, 62 - static_cast<int>(std::bit_width(cols)));
  const dim3 grid(to_unsigned(logits.rows), to_unsigned(ceil_div<int64_t>(logits.cols, kWeightThreads)));
  launch(weights_kernel, grid, dim3(kWeightThreads), 0, stream(), typed<float>(logits), logits.stride,
         logits.cols, best, static_cast<double>(how.temperature), one, weights);
  const dim3 block(logits.cols > 8192 ? kMaxThreads : kDigits);
  auto* device_ids = reinterpret_cast<int32_t*>(best + candidates);
  for (size_t first = 0; first < rows; first += kRowsPerLaunch) {
    const size_t count = std::min<size_t>(kRowsPerLaunch, rows - first);
    const DrawArgs args = {typed<float>(logits) + static_cast<int64_t>(first) * logits.stride,
                           logits.stride,
                           logits.cols,
                           best + first,
                           weights + first * cols,
                           how,
                           one,
                           device_ids + first};
    launch(draw_kernel, dim3(static_cast<unsigned>(count)), block, 0, stream(), args,
           by_value<double, kRowsPerLaunch>(uniforms, first, count));
  }
  copy_out(ids.data(), device_ids, rows * sizeof(int32_t));
}

}  // namespace lariat
