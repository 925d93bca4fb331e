#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/ptx.cuh"

// Products of 2 to 16 tokens in bf16, on tensor cores: the weights are the A operand as they lie in
// memory, the tokens the columns of B. Arithmetic costs next to nothing then, and every weight is still read
// once.
//
// A sum does not ask for an order of its columns, so that lanes may number them as suits their loads: of 32
// neighbouring columns lane 4 g + t has 8 t .. 8 t + 7, 16 bytes, of rows g and g + 8 of w and of token g.
// The first four words of those are what one mma takes for its columns 2t, 2t+1, 2t+8 and 2t+9, the other
// four are those of a second.
namespace lariat::cuda {
namespace {

constexpr int kWarps = 8;     // they share the columns, a batch each in turn
constexpr int kLoads = 8;     // of 16 bytes of weights that a lane has on their way at once
constexpr int kTile = 16;     // rows of w in an mma
constexpr int kGroup = 8;     // tokens in an mma
constexpr int kColumns = 32;  // of one 16-byte load of every lane
constexpr int kPerLane = 8;   // columns of those

// A warp's part of kTiles x kGroups products of 16 rows with 8 tokens.
template <int kTiles, int kGroups>
struct Part {
  static constexpr int kAhead = kLoads / (2 * kTiles);  // neighbouring loads of a row
  static constexpr int kBatch = kAhead * kColumns;      // columns
  static constexpr int kSums = kTiles * kGroups * kTile * kGroup;

  const BFloat16* w[kTiles][2];  // rows g and g + 8, from this lane's first column on
  const BFloat16* x[kGroups];    // token g of each group, likewise
  float d[kTiles][kGroups][4];

  // The columns from `first` on. All loads come before the first use. kTail: columns beyond the last are 0.
  template <bool kTail>
  __device__ __forceinline__ void multiply_batch(int first, int columns_left) {
    uint4 weights[kAhead][kTiles][2], tokens[kAhead][kGroups];
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      const int at = first + c * kColumns;
      const bool there = !kTail || c * kColumns < columns_left;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        uint4& v = weights[c][i / 2][i % 2];
        if constexpr (kTail) v = {0, 0, 0, 0};
        if (there) v = load16_weights(w[i / 2][i % 2] + at);
      }
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        if constexpr (kTail) tokens[c][n] = {0, 0, 0, 0};
        if (there) tokens[c][n] = load16(x[n] + at);
      }
    }
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 low = weights[c][tile][0], high = weights[c][tile][1];
        const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          mma_16x8x16<BFloat16>(d[tile][n], a[0], tokens[c][n].x, tokens[c][n].y);
          mma_16x8x16<BFloat16>(d[tile][n], a[1], tokens[c][n].z, tokens[c][n].w);
        }
      }
    }
  }

  // This warp's batches of all columns.
  __device__ __forceinline__ void multiply(int cols) {
    const int whole = cols / kBatch;
    int batch = warp_index();
#pragma unroll 1
    for (; batch < whole; batch += kWarps) multiply_batch<false>(batch * kBatch, 0);
    const int first = batch * kBatch;
    if (first < cols) multiply_batch<true>(first, cols - first - lane_index() % 4 * kPerLane);
  }

  // sums[tile][token][row]
  __device__ __forceinline__ void store(float* sums) const {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < kTiles * kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[(i * kGroup + 2 * t + j % 2) * kTile + g + j / 2 * 8] = d[i / kGroups][i % kGroups][j];
      }
    }
  }
};

// Row r of the block's, of which a gated unit has as many of gate as of up. Beyond the last: the last again,
// not stored.
__device__ __forceinline__ const BFloat16* row_of_block(const Gemv& g, const GemvProduct& p, int first_row,
                                                        int r) {
  const bool up = g.gated && r >= kTile;
  const GemvProduct& of = up ? g.product[1] : p;
  const int row = first_row + (up ? r - kTile : r), last = p.rows - 1;
  return static_cast<const BFloat16*>(of.w) + (row < last ? row : last) * of.w_stride;
}

// Asks for what the warp loads first, its first batch: 4 KiB, a line per lane.
template <int kTiles>
__device__ __forceinline__ void prefetch(const Gemv& g, const GemvProduct& p, int first_row) {
  constexpr int kPerLine = kLineBytes / 2, kLines = 2 / kTiles;  // of a row
  const int column = (warp_index() * kLines + lane_index() % kLines) * kPerLine;
  if (column < g.cols) prefetch_l2(row_of_block(g, p, first_row, lane_index() / kLines) + column);
}

// Up to 8 kGroups tokens of up to three products. A block makes 16 kTiles rows of a product or, where gated,
// which takes two tiles, 16 rows each of gate and up.
// Grid: blocks by share_blocks; 256 threads; static shared memory for the warps' sums. Bound by memory: the
// weights are streamed past the caches, x stays in L1.
template <int kTiles, int kGroups>
__global__ void __launch_bounds__(kWarps* kWarpSize, 2) gemv_mma_kernel(const __grid_constant__ Gemv g) {
  using P = Part<kTiles, kGroups>;
  LARIAT_SHARED(float, sums, kWarps* P::kSums);
  const GemvProduct& p = g.product[product_of_block(g)];
  const int rows_per_block = g.gated ? kTile : kTiles * kTile;
  const int first_row = static_cast<int>(blockIdx.x - p.first_block) * rows_per_block;
  const int lane_row = lane_index() / 4, column = lane_index() % 4 * kPerLane;

  launch_dependents();
  prefetch<kTiles>(g, p, first_row);
  wait_for_launches();

  P part = {};
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    part.w[i / 2][i % 2] = row_of_block(g, p, first_row, lane_row + i * 8) + column;
  }
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {  // tokens beyond the last: the last again, not stored
    const int token = n * kGroup + lane_row, last = g.tokens - 1;
    part.x[n] = static_cast<const BFloat16*>(g.x) + (token < last ? token : last) * g.x_stride + column;
  }
  part.multiply(g.cols);
  part.store(sums + warp_index() * P::kSums);
  __syncthreads();

  constexpr int kPerTile = P::kSums / kTiles;
  const auto total = [&](int at) {
    float sum = sums[at];
    for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp * P::kSums + at];
    return sum;
  };
  for (int at = static_cast<int>(threadIdx.x); at < (g.gated ? kPerTile : P::kSums);
       at += kWarps * kWarpSize) {
    const int token = at % kPerTile / kTile;
    const int row = first_row + at / kPerTile * kTile + at % kTile;
    if (token >= g.tokens || row >= p.rows) continue;
    float value = total(at) + bias_of(p, row);
    if (g.gated) {
      value = activated(value, g.activation) * (total(kPerTile + at) + bias_of(g.product[1], row));
    }
    store_output(g, p, token * p.out_stride + row, value);
  }
}

}  // namespace

void gemv_mma(Gemv& g, int n_products, int multiprocessors, LaunchQueue& queue) {
  // Two tiles of a block share its loads of x. One fills the machine with fewer rows.
  int64_t rows = 0;
  for (int i = 0; i < n_products; ++i) rows += g.product[i].rows;
  const bool two = g.gated || rows >= int64_t{4} * 2 * kTile * multiprocessors;
  const unsigned blocks = share_blocks(g, n_products, two && !g.gated ? 2 * kTile : kTile);
  const bool many = g.tokens > kGroup;
  const auto kernel = two ? (many ? gemv_mma_kernel<2, 2> : gemv_mma_kernel<2, 1>)
                          : (many ? gemv_mma_kernel<1, 2> : gemv_mma_kernel<1, 1>);
  launch(kernel, dim3(blocks), dim3(kWarps * kWarpSize), 0, queue, g);
}

}  // namespace lariat::cuda
