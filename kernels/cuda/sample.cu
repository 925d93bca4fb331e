#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "kernels/cuda/argmax.cuh"
#include "kernels/cuda/cuda_backend.h"

// Tokens from logits: argmax, and top-k, top-p, min-p and multinomial sampling. The logits of a row are read
// once for argmax and twice for a draw, by many blocks each time: for the largest, then to weigh every token
// and sort it into one of 256 bins by its distance from the largest. What is left is for one block per row,
// from the bins' sums: each cut, and the draw itself, looks for the first token, in the order of falling
// logits, at which a running sum (of tokens or of weights) reaches a target. It reads the tokens of the bin
// in which that lies, and no others. A cut keeps a beginning of that order, so that all there is to know of
// it is the weight it keeps.
//
// Weights are integers, exp((logit - largest) / temperature) times a power of two such that the sum of a row
// fits into 62 bits: sums of integers do not depend on their order, so a draw is the same in every run. For
// 2^17 tokens one step of a weight is 2^-44 of the largest; what is rounded away of a row is less than 2^-27,
// with the tokens of the last bin, which weigh less than 2^-45 each and are never drawn.
namespace lariat {
namespace {

using namespace cuda;

using Amount = unsigned long long;  // a number of tokens or a sum of weights, as atomicAdd knows it

constexpr int kBins = 256;  // of a draw; the last one's tokens are too unlikely to be drawn
constexpr unsigned kNever = kBins - 1;

struct Sums {
  Amount tokens[kBins], weight[kBins];
};

// A row of a draw: of its bins, and of all tokens of at least min-p.
struct RowSums {
  Sums bins;
  Amount likely;
};

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWeighThreads = 256;
constexpr int kPerThread = 8;
constexpr int64_t kPart = kWeighThreads * kPerThread;  // columns of a block that weighs
constexpr int kDirect = 256;                           // as many tokens are compared one with another
constexpr int kRowsPerLaunch = 16;    // bounds the memory of a draw: 16 bytes per logit of these
constexpr float kBinsPerUnit = 8.0F;  // of logit / temperature: 255 of them reach to 2^-45
using Uniforms = ByValue<double, kRowsPerLaunch>;

// A token that can be drawn.
struct alignas(16) Token {
  float logit;
  int32_t id;
  Amount weight;

  // Rises in the order of falling logits (-0 and 0 are equal), by id among equals.
  __device__ Amount key() const {
    const uint32_t bits = float_bits(logit + 0.0F);
    const uint32_t falling = (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffU;
    return Amount{falling} << 32 | static_cast<uint32_t>(id);
  }
};

struct DrawArgs {
  const float* logits;
  int64_t stride, cols;
  Candidate* chunks;
  int64_t n_chunks, n_parts;
  Sampling how;
  float bins_per_unit;
  double one;     // the weight of the largest logit
  Token* tokens;  // [rows][parts][kPart], a part's by bin
  uint32_t*
      segments;   // [rows][kBins][parts]: where a bin's begin in a part, times 2^16, and how many they are
  RowSums* sums;  // [rows]
  int32_t* ids;
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) < INFINITY; }

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

// Never falls when the logit falls.
__device__ __forceinline__ unsigned bin_of(const DrawArgs& a, float largest, float logit) {
  const float steps = (largest - logit) * a.bins_per_unit;
  return finite(logit) && steps < static_cast<float>(kNever) ? static_cast<unsigned>(steps) : kNever;
}

__device__ __forceinline__ Amount weight_of(const DrawArgs& a, float largest, float logit) {
  const double distance = static_cast<double>(logit) - static_cast<double>(largest);
  return static_cast<Amount>(a.one * exp(distance / static_cast<double>(a.how.temperature)) + 0.5);
}

// Grid: rows by parts of 2048 columns. 256 threads, one for each bin; each weighs 8 tokens. Bound by
// arithmetic in double. Writes a part's tokens by bin, where each bin's begin, and adds to the row's sums.
__global__ void __launch_bounds__(kWeighThreads) weigh_kernel(const __grid_constant__ DrawArgs a) {
  LARIAT_SHARED(unsigned, counts, kBins);
  LARIAT_SHARED(Amount, weights, kBins);
  LARIAT_SHARED(unsigned, starts, kBins);
  LARIAT_SHARED(Amount, partial, kWarpSize);
  static_assert(kWeighThreads == kBins);
  const float largest = row_best(a.chunks, a.n_chunks).value;
  if (!finite(largest)) return;
  const unsigned bin = threadIdx.x;
  counts[bin] = 0;
  weights[bin] = 0;
  __syncthreads();

  const auto least = static_cast<Amount>(ceil(static_cast<double>(a.how.min_p) * a.one));
  const int64_t first = blockIdx.y * kPart + threadIdx.x;
  Token mine[kPerThread];
  unsigned place[kPerThread];  // the bin, times 2^16, and the token's number in it
  Amount likely = 0;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int64_t i = first + int64_t{j} * kWeighThreads;
    const float logit = i < a.cols ? a.logits[blockIdx.x * a.stride + i] : -INFINITY;
    const unsigned its_bin = bin_of(a, largest, logit);
    place[j] = its_bin << 16;
    mine[j] = {logit, static_cast<int32_t>(i), its_bin == kNever ? 0 : weight_of(a, largest, logit)};
    if (its_bin == kNever) continue;
    place[j] |= atomicAdd(&counts[its_bin], 1);
    atomicAdd(&weights[its_bin], mine[j].weight);
    if (mine[j].weight >= least) likely += mine[j].weight;
  }
  likely = block_sum(likely, partial);  // its barriers: all of the part is counted
  const Amount count = counts[bin], start = block_prefix(count, partial);
  starts[bin] = static_cast<unsigned>(start);
  a.segments[(int64_t{blockIdx.x} * kBins + bin) * a.n_parts + blockIdx.y] =
      static_cast<uint32_t>(start << 16 | count);
  RowSums& sums = a.sums[blockIdx.x];
  if (count > 0) {
    atomicAdd(&sums.bins.tokens[bin], count);
    atomicAdd(&sums.bins.weight[bin], weights[bin]);
  }
  if (threadIdx.x == 0 && likely > 0) atomicAdd(&sums.likely, likely);
  __syncthreads();
  Token* tokens = a.tokens + (blockIdx.x * a.n_parts + blockIdx.y) * kPart;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (place[j] >> 16 != kNever) tokens[starts[place[j] >> 16] + (place[j] & 0xffffU)] = mine[j];
  }
}

// The token at which a running sum reaches its target, and the weight of all up to and with it.
struct Found {
  int32_t id;
  Amount weight;
};

// Shared memory of a draw.
struct Board {
  Sums sums;
  Amount partial[kWarpSize];
  unsigned digit;
  Amount tokens_before, weight_before;  // of that digit
  Token list[kDirect];
  unsigned listed;
  Found found;
};

// f(token) for the tokens of a bin of block x's row, shared out over the block.
template <class F>
__device__ __forceinline__ void for_tokens(const DrawArgs& a, unsigned bin, const F& f) {
  const uint32_t* segments = a.segments + (int64_t{blockIdx.x} * kBins + bin) * a.n_parts;
  for (int64_t part = warp_index(); part < a.n_parts; part += blockDim.x / kWarpSize) {
    const uint32_t segment = segments[part];
    const Token* tokens = a.tokens + (blockIdx.x * a.n_parts + part) * kPart + (segment >> 16);
    for (unsigned i = threadIdx.x % kWarpSize; i < (segment & 0xffffU); i += kWarpSize) f(tokens[i]);
  }
}

// Which of the running sums looks for its target.
struct Target {
  Amount value;
  bool by_weight;

  __device__ bool reached(Amount tokens, Amount weight) const {
    return (by_weight ? weight : tokens) >= value;
  }
};

// The digit of board.sums in which the target lies, and what lies before it. By the whole block.
__device__ void find_digit(const Target& target, Board& board) {
  __syncthreads();  // the sums are there
  const bool has = threadIdx.x < kBins;
  const Amount tokens = has ? board.sums.tokens[threadIdx.x] : 0;
  const Amount weight = has ? board.sums.weight[threadIdx.x] : 0;
  const Amount tokens_before = block_prefix(tokens, board.partial);
  const Amount weight_before = block_prefix(weight, board.partial);
  if (!target.reached(tokens_before, weight_before) &&
      target.reached(tokens_before + tokens, weight_before + weight)) {
    board.digit = threadIdx.x;
    board.tokens_before = tokens_before;
    board.weight_before = weight_before;
  }
  __syncthreads();
}

// Keys from `low` to `high`, those of a bin's tokens that are still in play, and what lies before them.
struct Range {
  Amount low = 0, high = ~Amount{0};
  Amount tokens_before = 0, weight_before = 0;
  Amount tokens = 0;

  __device__ bool has(Amount key) const { return low <= key && key <= high; }
  __device__ void pass(Board& board, unsigned digit) {
    tokens_before += board.tokens_before;
    weight_before += board.weight_before;
    tokens = board.sums.tokens[digit];
  }
};

__device__ Target rest_of(const Target& target, const Range& range) {
  return {target.value - (target.by_weight ? range.weight_before : range.tokens_before), target.by_weight};
}

// Narrows the range to a 256th or less: the one of its parts in which the target lies.
__device__ void narrow(const DrawArgs& a, unsigned bin, const Target& target, Range& range, Board& board) {
  int shift = 0;
  while ((range.high - range.low) >> shift >= kBins) ++shift;
  if (threadIdx.x < kBins) board.sums.tokens[threadIdx.x] = board.sums.weight[threadIdx.x] = 0;
  __syncthreads();
  for_tokens(a, bin, [&](const Token& token) {
    if (!range.has(token.key())) return;
    const Amount digit = (token.key() - range.low) >> shift;
    atomicAdd(&board.sums.tokens[digit], 1);
    atomicAdd(&board.sums.weight[digit], token.weight);
  });
  find_digit(rest_of(target, range), board);
  range.low += Amount{board.digit} << shift;
  range.high = range.low + ((Amount{1} << shift) - 1);
  range.pass(board, board.digit);
  __syncthreads();
}

// The first and the last key of a bin: keys of one bin have much in common.
__device__ void limit(const DrawArgs& a, unsigned bin, Range& range, Board& board) {
  Amount low = ~Amount{0}, high = 0;
  for_tokens(a, bin, [&](const Token& token) {
    low = low < token.key() ? low : token.key();
    high = high > token.key() ? high : token.key();
  });
  const auto warp_high = [](Amount x) {
#pragma unroll
    for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
      const Amount other = __shfl_xor_sync(kFullWarp, x, lanes);
      x = x > other ? x : other;
    }
    return x;
  };
  range.low = ~block_reduce(~low, Amount{0}, board.partial, warp_high);
  range.high = block_reduce(high, Amount{0}, board.partial, warp_high);
}

// Of up to kDirect tokens, the one that reaches the target, by comparing each with all.
__device__ void compare(const DrawArgs& a, unsigned bin, const Target& target, const Range& range,
                        Board& board) {
  if (threadIdx.x == 0) board.listed = 0;
  __syncthreads();
  for_tokens(a, bin, [&](const Token& token) {
    if (range.has(token.key())) board.list[atomicAdd(&board.listed, 1)] = token;
  });
  __syncthreads();
  if (threadIdx.x < board.listed) {
    const Token mine = board.list[threadIdx.x];
    const Amount key = mine.key();
    Amount tokens = range.tokens_before, weight = range.weight_before;
    for (unsigned i = 0; i < board.listed; ++i) {
      const bool ahead = board.list[i].key() < key;
      tokens += ahead ? 1 : 0;
      weight += ahead ? board.list[i].weight : 0;
    }
    if (!target.reached(tokens, weight) && target.reached(tokens + 1, weight + mine.weight)) {
      board.found = {mine.id, weight + mine.weight};
    }
  }
  __syncthreads();
}

// The token at which the row's running sum reaches the target, which is at least 1 and at most the whole sum.
// By the whole block.
__device__ Found walk(const DrawArgs& a, const Target& target, Board& board) {
  if (threadIdx.x < kBins) {
    board.sums.tokens[threadIdx.x] = a.sums[blockIdx.x].bins.tokens[threadIdx.x];
    board.sums.weight[threadIdx.x] = a.sums[blockIdx.x].bins.weight[threadIdx.x];
  }
  find_digit(target, board);
  const unsigned bin = board.digit;
  Range range;
  range.pass(board, bin);
  __syncthreads();
  if (range.tokens > kDirect) limit(a, bin, range, board);
  while (range.tokens > kDirect) narrow(a, bin, target, range, board);
  compare(a, bin, target, range, board);
  const Found found = board.found;
  __syncthreads();
  return found;
}

// Grid: one block of 256 threads or, for long rows, 1024 per row. Bound by latency: of some ten barriers and
// two reads from L2 per cut, more where over 256 tokens share a bin.
__global__ void __launch_bounds__(kMaxThreads)
    draw_kernel(const __grid_constant__ DrawArgs a, const __grid_constant__ Uniforms uniforms) {
  LARIAT_SHARED(Board, boards, 1);
  Board& board = boards[0];
  if (!finite(row_best(a.chunks, a.n_chunks).value)) {
    if (threadIdx.x == 0) a.ids[blockIdx.x] = -1;
    return;
  }
  const RowSums& sums = a.sums[blockIdx.x];
  const bool has = threadIdx.x < kBins;
  const Amount tokens = block_sum(has ? sums.bins.tokens[threadIdx.x] : 0, board.partial);
  Amount kept = block_sum(has ? sums.bins.weight[threadIdx.x] : 0, board.partial);
  // What lies behind all bins has no weight: cut off or not.
  if (a.how.top_k > 0 && static_cast<Amount>(a.how.top_k) < tokens) {
    kept = walk(a, {static_cast<Amount>(a.how.top_k), false}, board).weight;
  }
  if (a.how.top_p < 1.0F) {
    const auto wanted =
        static_cast<Amount>(ceil(static_cast<double>(a.how.top_p) * static_cast<double>(kept)));
    kept = walk(a, {wanted < 1 ? 1 : wanted < kept ? wanted : kept, true}, board).weight;
  }
  kept = kept < sums.likely ? kept : sums.likely;
  const auto target = static_cast<Amount>(uniforms.value[blockIdx.x] * static_cast<double>(kept));
  const int32_t id = walk(a, {target < kept ? target + 1 : kept, true}, board).id;
  if (threadIdx.x == 0) a.ids[blockIdx.x] = id;
}

// Where everything lies in the memory of a draw, in bytes from its beginning.
struct DrawPlan {
  size_t n_parts, rows_at_once, sums, chunks, segments, bytes;

  explicit DrawPlan(const Matrix& logits) {
    const auto rows = static_cast<size_t>(logits.rows);
    n_parts = static_cast<size_t>(ceil_div(logits.cols, kPart));
    rows_at_once = std::min<size_t>(rows, kRowsPerLaunch);
    sums = rows_at_once * n_parts * static_cast<size_t>(kPart) * sizeof(Token);
    chunks = sums + rows * sizeof(RowSums);
    segments = chunks + rows * static_cast<size_t>(argmax_chunks_per_row(logits)) * sizeof(Candidate);
    bytes = segments + rows_at_once * kBins * n_parts * sizeof(uint32_t);
  }
};

DrawArgs describe_draw(const Matrix& logits, const Sampling& how, const DrawPlan& plan, char* memory,
                       int32_t* ids) {
  DrawArgs a = {};
  a.logits = typed<float>(logits);
  a.stride = logits.stride;
  a.cols = logits.cols;
  a.chunks = reinterpret_cast<Candidate*>(memory + plan.chunks);
  a.n_chunks = argmax_chunks_per_row(logits);
  a.n_parts = static_cast<int64_t>(plan.n_parts);
  a.how = how;
  a.bins_per_unit = std::min(kBinsPerUnit / how.temperature, FLT_MAX);
  a.one = std::ldexp(1.0, 62 - static_cast<int>(std::bit_width(static_cast<uint64_t>(logits.cols))));
  a.tokens = reinterpret_cast<Token*>(memory);
  a.segments = reinterpret_cast<uint32_t*>(memory + plan.segments);
  a.sums = reinterpret_cast<RowSums*>(memory + plan.sums);
  a.ids = ids;
  return a;
}

// The rows from `first` on.
DrawArgs from_row(DrawArgs a, size_t first) {
  a.logits += static_cast<int64_t>(first) * a.stride;
  a.chunks += static_cast<int64_t>(first) * a.n_chunks;
  a.sums += first;
  a.ids += first;
  return a;
}

}  // namespace

void CudaBackend::draw(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
                       int32_t* ids) {
  const auto rows = static_cast<size_t>(logits.rows);
  const DrawPlan plan(logits);
  const DrawArgs all =
      describe_draw(logits, how, plan, static_cast<char*>(scratch(Scratch::kResult, plan.bytes)), ids);
  launch_argmax_chunks(logits, all.chunks, stream(), reinterpret_cast<uint64_t*>(all.sums),
                       sizeof(RowSums) / sizeof(uint64_t));
  const dim3 threads(logits.cols > 8192 ? kMaxThreads : kBins);
  for (size_t first = 0; first < rows; first += plan.rows_at_once) {
    const size_t count = std::min(plan.rows_at_once, rows - first);
    const DrawArgs args = from_row(all, first);
    launch(weigh_kernel, dim3(static_cast<unsigned>(count), static_cast<unsigned>(plan.n_parts)),
           dim3(kWeighThreads), 0, stream(), args);
    launch(draw_kernel, dim3(static_cast<unsigned>(count)), threads, 0, stream(), args,
           by_value<double, kRowsPerLaunch>(uniforms, first, count));
  }
}

void CudaBackend::sample(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
                         std::span<int32_t> ids) {
  sample_ahead(logits, how, uniforms, ids, {});
  for (int32_t& id : ids) id = std::max(id, -1);
}

}  // namespace lariat
