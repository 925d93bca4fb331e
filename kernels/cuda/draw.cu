#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

// Sampling from logits: argmax, or top-k, top-p, min-p and a multinomial draw. Many blocks read a row: once
// for the maximum and, with a temperature above 0, once to sort weights into 256 bins by distance from the
// maximum. One block per row does the rest. Each cut, and the draw, finds the first token, in descending
// order of logits, at which a running sum (of tokens or weights) reaches a target, and reads only this
// token's bin. A cut keeps a prefix, described by its weight alone.
//
// Weights are integers, exp((logit - largest) / temperature) times a power of two such that a row's sum fits
// into 62 bits. Integer sums do not depend on their order: a draw is the same in every run. For 2^17 tokens,
// one step of a weight is 2^-44 of the largest weight. A row loses less than 2^-27 to rounding and to the
// tokens of the last bin, which weigh less than 2^-45 each.
namespace lariat {
namespace {

using namespace cuda;

using Amount = unsigned long long;  // token count or sum of weights

constexpr int kBins = 256;  // the last bin's tokens are too improbable to be drawn
constexpr unsigned kNever = kBins - 1;
constexpr unsigned kThreads = 256;
constexpr unsigned kMaxThreads = 1024;
constexpr int64_t kChunk = 8192;  // columns per block that finds the maximum
constexpr int kPerThread = 8;
constexpr int64_t kPart = kThreads * kPerThread;  // columns per block that weighs
constexpr int kDirect = 256;                      // most tokens to compare pairwise
constexpr int kRowsPerLaunch = 16;                // bounds memory: 16 bytes per logit of these rows
constexpr float kBinsPerUnit = 8.0F;              // per unit of logit / temperature: 255 bins reach 2^-45
using Uniforms = ByValue<double, kRowsPerLaunch>;

struct Tally {
  Amount tokens, weight;

  __device__ Tally operator+(const Tally& other) const {
    return {tokens + other.tokens, weight + other.weight};
  }
};

// Bins of a row, and the weight of all tokens of at least min-p.
struct RowSums {
  Tally bins[kBins];
  Amount likely;
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) < INFINITY; }

// Sort key of a token: rises with falling logits (-0 equals 0), ties by id. NaN: last, no id.
constexpr Amount kLast = ~Amount{0};
__device__ __forceinline__ Amount place_of(float logit, int32_t id) {
  const uint32_t bits = float_bits(logit + 0.0F);
  const uint32_t falling = (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffU;
  return logit == logit ? Amount{falling} << 32 | static_cast<uint32_t>(id) : kLast;
}

__device__ __forceinline__ int32_t id_at(Amount place) {
  return place == kLast ? 0 : static_cast<int32_t>(place & 0xffffffffU);
}

struct alignas(16) Token {
  Amount place, weight;
};

struct DrawArgs {
  const float* logits;
  int64_t stride, cols, n_chunks, n_parts;
  Sampling how[kRowsPerLaunch];
  float bins_per_unit[kRowsPerLaunch];
  double one;      // the weight of the largest logit
  Amount* firsts;  // [rows][n_chunks]: first sort key of a chunk
  RowSums* sums;   // [rows]
  Token* tokens;   // [rows][n_parts][kPart], each part sorted by bin
  // [rows][kBins][n_parts]: start of a bin's tokens in a part, times 2^16, plus their count
  uint32_t* segments;
  int32_t* ids;
};

__device__ __forceinline__ Amount warp_first(Amount place) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const Amount other = __shfl_xor_sync(kFullWarp, place, lanes);
    place = other < place ? other : place;
  }
  return place;
}

// Grid: rows by chunks of 8192 columns. Bound by memory. Writes the first sort key of each chunk, and zeros
// to the row's sums.
__global__ void __launch_bounds__(kThreads) largest_kernel(const __grid_constant__ DrawArgs a) {
  LARIAT_SHARED(Amount, partial, kWarpSize);
  static_assert(kThreads == kBins);
  if (blockIdx.y == 0 && a.how[blockIdx.x].temperature > 0.0F) {
    a.sums[blockIdx.x].bins[threadIdx.x] = {0, 0};
    if (threadIdx.x == 0) a.sums[blockIdx.x].likely = 0;
  }
  const float* row = a.logits + blockIdx.x * a.stride;
  const int64_t begin = blockIdx.y * kChunk;
  const int64_t end = begin + kChunk < a.cols ? begin + kChunk : a.cols;
  Amount first = kLast;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const Amount place = place_of(row[i], static_cast<int32_t>(i));
    first = place < first ? place : first;
  }
  first = block_reduce(first, kLast, partial, warp_first);
  if (threadIdx.x == 0) a.firsts[blockIdx.x * a.n_chunks + blockIdx.y] = first;
}

// Most probable token of block x's row.
struct Largest {
  float logit;  // NaN if the row is only NaN
  int32_t id;
};
__device__ __forceinline__ Largest largest_of(const DrawArgs& a) {
  Amount first = kLast;
  for (int64_t i = lane_index(); i < a.n_chunks; i += kWarpSize) {
    const Amount place = a.firsts[blockIdx.x * a.n_chunks + i];
    first = place < first ? place : first;
  }
  first = warp_first(first);
  return {a.logits[blockIdx.x * a.stride + id_at(first)], id_at(first)};
}

// Sum over the preceding threads.
__device__ __forceinline__ Tally block_prefix(const Tally& mine, Tally* partial) {
  const unsigned warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  Tally sum = mine;
#pragma unroll
  for (unsigned by = 1; by < kWarpSize; by *= 2) {
    const Tally other = {__shfl_up_sync(kFullWarp, sum.tokens, by),
                         __shfl_up_sync(kFullWarp, sum.weight, by)};
    if (lane >= by) sum = sum + other;
  }
  if (lane == kWarpSize - 1) partial[warp] = sum;
  __syncthreads();
  for (unsigned w = 0; w < warp; ++w) sum = sum + partial[w];
  __syncthreads();
  return {sum.tokens - mine.tokens, sum.weight - mine.weight};
}

// Never falls when the logit falls.
__device__ __forceinline__ unsigned bin_of(const DrawArgs& a, float largest, float logit) {
  const float steps = (largest - logit) * a.bins_per_unit[blockIdx.x];
  return finite(logit) && steps < static_cast<float>(kNever) ? static_cast<unsigned>(steps) : kNever;
}

__device__ __forceinline__ Amount weight_of(const DrawArgs& a, float largest, float logit) {
  const double distance = static_cast<double>(logit) - static_cast<double>(largest);
  return static_cast<Amount>(a.one * exp(distance / static_cast<double>(a.how[blockIdx.x].temperature)) +
                             0.5);
}

// Grid: rows by parts of 2048 columns; one thread per bin. Bound by double arithmetic. Writes a part's tokens
// by bin and the start of each bin; adds to the row's sums.
__global__ void __launch_bounds__(kThreads) weigh_kernel(const __grid_constant__ DrawArgs a) {
  LARIAT_SHARED(unsigned, counts, kBins);
  LARIAT_SHARED(Amount, weights, kBins);
  LARIAT_SHARED(unsigned, starts, kBins);
  LARIAT_SHARED(Amount, likely_of_warps, kWarpSize);
  LARIAT_SHARED(Tally, partial, kWarpSize);
  const float largest = largest_of(a).logit;
  const Sampling& how = a.how[blockIdx.x];
  if (how.temperature <= 0.0F || !finite(largest)) return;
  const unsigned bin = threadIdx.x;
  counts[bin] = 0;
  weights[bin] = 0;
  __syncthreads();

  const auto least = static_cast<Amount>(ceil(static_cast<double>(how.min_p) * a.one));
  const int64_t first = blockIdx.y * kPart + threadIdx.x;
  float logits[kPerThread];
  Amount mine[kPerThread];
  unsigned place[kPerThread];  // bin times 2^16, plus the token's index in the bin
  Amount likely = 0;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int64_t i = first + int64_t{j} * kThreads;
    logits[j] = i < a.cols ? a.logits[blockIdx.x * a.stride + i] : -INFINITY;
    const unsigned its_bin = bin_of(a, largest, logits[j]);
    place[j] = its_bin << 16;
    if (its_bin == kNever) continue;
    mine[j] = weight_of(a, largest, logits[j]);
    place[j] |= atomicAdd(&counts[its_bin], 1);
    atomicAdd(&weights[its_bin], mine[j]);
    if (mine[j] >= least) likely += mine[j];
  }
  likely = block_sum(likely, likely_of_warps);  // its barriers complete the part's counts
  const Tally sum = {counts[bin], weights[bin]};
  const Amount start = block_prefix(sum, partial).tokens;
  starts[bin] = static_cast<unsigned>(start);
  a.segments[(int64_t{blockIdx.x} * kBins + bin) * a.n_parts + blockIdx.y] =
      static_cast<uint32_t>(start << 16 | sum.tokens);
  RowSums& sums = a.sums[blockIdx.x];
  if (sum.tokens > 0) {
    atomicAdd(&sums.bins[bin].tokens, sum.tokens);
    atomicAdd(&sums.bins[bin].weight, sum.weight);
  }
  if (threadIdx.x == 0 && likely > 0) atomicAdd(&sums.likely, likely);
  __syncthreads();
  Token* tokens = a.tokens + (blockIdx.x * a.n_parts + blockIdx.y) * kPart;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (place[j] >> 16 == kNever) continue;
    const auto id = static_cast<int32_t>(first + int64_t{j} * kThreads);
    tokens[starts[place[j] >> 16] + (place[j] & 0xffffU)] = {place_of(logits[j], id), mine[j]};
  }
}

struct Board {
  Tally sums[kBins];
  Tally partial[kWarpSize];
  unsigned part;  // contains the target
  Tally before;   // running sum before this part
  Token list[kDirect];
  unsigned listed;
  Token found;
};

// Calls f(token) for a bin's tokens, distributed over the block.
template <class F>
__device__ __forceinline__ void for_tokens(const DrawArgs& a, unsigned bin, const F& f) {
  const uint32_t* segments = a.segments + (int64_t{blockIdx.x} * kBins + bin) * a.n_parts;
  for (int64_t part = warp_index(); part < a.n_parts; part += blockDim.x / kWarpSize) {
    const uint32_t segment = segments[part];
    const Token* tokens = a.tokens + (blockIdx.x * a.n_parts + part) * kPart + (segment >> 16);
    for (unsigned i = threadIdx.x % kWarpSize; i < (segment & 0xffffU); i += kWarpSize) f(tokens[i]);
  }
}

struct Target {
  Amount value;
  bool by_weight;

  __device__ bool reached(const Tally& sum) const { return (by_weight ? sum.weight : sum.tokens) >= value; }
};

// Part of board.sums in which the running sum, starting at `before`, reaches the target. Sets `before` to the
// sum before this part. Called by the whole block.
__device__ unsigned find_part(const Target& target, Tally& before, Board& board) {
  __syncthreads();  // the sums are complete
  const Tally mine = threadIdx.x < kBins ? board.sums[threadIdx.x] : Tally{0, 0};
  const Tally front = before + block_prefix(mine, board.partial);
  if (!target.reached(front) && target.reached(front + mine)) {
    board.part = threadIdx.x;
    board.before = front;
  }
  __syncthreads();
  before = board.before;
  return board.part;
}

// Token at which the running sum reaches the target; its weight includes all tokens before. Called by the
// whole block.
__device__ Token walk(const DrawArgs& a, const Target& target, Board& board) {
  if (threadIdx.x < kBins) board.sums[threadIdx.x] = a.sums[blockIdx.x].bins[threadIdx.x];
  Tally before = {0, 0};
  unsigned part = find_part(target, before, board);
  const unsigned bin = part;
  // Remaining tokens have sort keys from `low` to low + width. While they are many, the search continues in
  // 1/256 of this range.
  Amount low = 0, width = kLast;
  for (int shift = 56; board.sums[part].tokens > kDirect; shift -= 8) {
    __syncthreads();  // all threads have read the sums
    if (threadIdx.x < kBins) board.sums[threadIdx.x] = {0, 0};
    __syncthreads();
    for_tokens(a, bin, [&](const Token& token) {
      const Amount distance = token.place - low;
      if (distance > width) return;
      atomicAdd(&board.sums[distance >> shift].tokens, 1);
      atomicAdd(&board.sums[distance >> shift].weight, token.weight);
    });
    part = find_part(target, before, board);
    low += Amount{part} << shift;
    width >>= 8;
  }
  if (threadIdx.x == 0) board.listed = 0;
  __syncthreads();
  for_tokens(a, bin, [&](const Token& token) {
    if (token.place - low <= width) board.list[atomicAdd(&board.listed, 1)] = token;
  });
  __syncthreads();
  if (threadIdx.x < board.listed) {
    const Token& mine = board.list[threadIdx.x];
    Tally front = before;
    for (unsigned i = 0; i < board.listed; ++i) {
      if (board.list[i].place < mine.place) front = front + Tally{1, board.list[i].weight};
    }
    const Tally with = front + Tally{1, mine.weight};
    if (!target.reached(front) && target.reached(with)) board.found = {mine.place, with.weight};
  }
  __syncthreads();
  const Token found = board.found;
  __syncthreads();
  return found;
}

// Grid: one block per row: one warp if every temperature is 0, else 256 threads or, for long rows, 1024.
// Bound by latency.
__global__ void __launch_bounds__(kMaxThreads)
    draw_kernel(const __grid_constant__ DrawArgs a, const __grid_constant__ Uniforms uniforms) {
  LARIAT_SHARED(Board, boards, 1);
  Board& board = boards[0];
  const Largest largest = largest_of(a);
  const Sampling& how = a.how[blockIdx.x];
  if (how.temperature <= 0.0F || !finite(largest.logit)) {
    if (threadIdx.x == 0) a.ids[blockIdx.x] = finite(largest.logit) ? largest.id : -1 - largest.id;
    return;
  }
  const RowSums& sums = a.sums[blockIdx.x];
  const Tally all = block_reduce(threadIdx.x < kBins ? sums.bins[threadIdx.x] : Tally{0, 0}, Tally{0, 0},
                                 board.partial, [](const Tally& sum) {
                                   return Tally{warp_sum(sum.tokens), warp_sum(sum.weight)};
                                 });
  Amount kept = all.weight;
  // Tokens after all bins have no weight, cut or not.
  if (how.top_k > 0 && static_cast<Amount>(how.top_k) < all.tokens) {
    kept = walk(a, {static_cast<Amount>(how.top_k), false}, board).weight;
  }
  if (how.top_p < 1.0F) {
    const auto wanted = static_cast<Amount>(ceil(static_cast<double>(how.top_p) * static_cast<double>(kept)));
    kept = walk(a, {wanted < 1 ? 1 : wanted < kept ? wanted : kept, true}, board).weight;
  }
  kept = kept < sums.likely ? kept : sums.likely;
  const auto target = static_cast<Amount>(uniforms.value[blockIdx.x] * static_cast<double>(kept));
  const int32_t id = id_at(walk(a, {target < kept ? target + 1 : kept, true}, board).place);
  if (threadIdx.x == 0) a.ids[blockIdx.x] = id;
}

}  // namespace

void CudaBackend::draw(const Matrix& logits, std::span<const Sampling> how,
                       std::span<const double> uniforms) {
  const auto n = static_cast<size_t>(logits.rows);
  reserve(drawn_ids_, n * sizeof(int32_t));
  if (drawn_.bytes() < n * sizeof(int32_t)) {
    drawn_ = Buffer();
    drawn_ = allocate(n * sizeof(int32_t));
  }
  const bool greedy = uniforms.empty() ||
                      std::ranges::all_of(how, [](const Sampling& row) { return row.temperature <= 0.0F; });
  DrawArgs a = {};
  a.stride = logits.stride;
  a.cols = logits.cols;
  a.n_chunks = ceil_div(logits.cols, kChunk);
  a.n_parts = greedy ? 0 : ceil_div(logits.cols, kPart);
  a.one = std::ldexp(1.0, 62 - static_cast<int>(std::bit_width(static_cast<uint64_t>(logits.cols))));
  const size_t most = std::min<size_t>(n, kRowsPerLaunch), parts = most * static_cast<size_t>(a.n_parts);
  const size_t token_bytes = parts * kPart * sizeof(Token), sum_bytes = greedy ? 0 : most * sizeof(RowSums);
  const size_t first_bytes = most * static_cast<size_t>(a.n_chunks) * sizeof(Amount);
  auto* memory = static_cast<char*>(
      scratch(Scratch::kResult, token_bytes + sum_bytes + first_bytes + parts * kBins * sizeof(uint32_t)));
  a.tokens = reinterpret_cast<Token*>(memory);
  a.sums = reinterpret_cast<RowSums*>(memory + token_bytes);
  a.firsts = reinterpret_cast<Amount*>(memory + token_bytes + sum_bytes);
  a.segments = reinterpret_cast<uint32_t*>(memory + token_bytes + sum_bytes + first_bytes);
  for (size_t first = 0; first < n; first += kRowsPerLaunch) {
    const size_t count = std::min<size_t>(kRowsPerLaunch, n - first);
    const auto rows = static_cast<unsigned>(count);
    for (size_t row = 0; !greedy && row < count; ++row) {
      a.how[row] = how[first + row];
      a.bins_per_unit[row] = std::min(kBinsPerUnit / a.how[row].temperature, FLT_MAX);
    }
    a.logits = typed<float>(logits) + static_cast<int64_t>(first) * a.stride;
    a.ids = static_cast<int32_t*>(drawn_.data()) + first;
    launch(largest_kernel, dim3(rows, to_unsigned(a.n_chunks)), dim3(kThreads), 0, stream(), a);
    if (!greedy) launch(weigh_kernel, dim3(rows, to_unsigned(a.n_parts)), dim3(kThreads), 0, stream(), a);
    launch(draw_kernel, dim3(rows),
           dim3(greedy            ? kWarpSize
                : a.cols > kChunk ? kMaxThreads
                                  : kThreads),
           0, stream(), a, by_value<double, kRowsPerLaunch>(uniforms, first, greedy ? 0 : count));
  }
  cuda::copy_to_host(drawn_ids_.data, drawn_.data(), n * sizeof(int32_t), stream());
  cuda::event_record(drawn_ids_.copied, stream());
}

void CudaBackend::read_drawn(std::span<int32_t> ids) {
  queue_.flush();  // later work runs during the wait
  cuda::event_synchronize(drawn_ids_.copied);
  std::memcpy(ids.data(), drawn_ids_.data, ids.size_bytes());
}

}  // namespace lariat
