#pragma once
#include <span>

#include "kernels/integers.h"
#include "kernels/weight.h"

// The matrix product for many rows of x (prefill). One driver (gemm.cpp) cuts the product into blocks that
// fit the second-level cache; a GemmKernel multiplies one block. Only x is packed, once for all
// products of it:
//
//   packed x:  panels of `panel` rows, each [k][panel] (16-bit: [k/2][panel][2]), so that a vector holds one
//              column of x for consecutive rows
//   w:         read where it lies, one value (16-bit: one pair) of a row broadcast to all lanes
//
// Thus a weight is neither copied nor reordered when its dtype is the kernel's, and a mapped file is read
// once. A tile of w rows by x vectors stays in registers while k runs. Processors with AMX have a driver of
// their own (gemm_amx), because tiles want other blocks and w packed as well.
//
// Which kernel multiplies more than kGemvRows rows of x (gemv.h has up to as many):
//
//   w, compute     AMX                      AVX-512 BF16       everything else
//   bf16, bf16     tiles                    gemm_bf16_kernel   gemm_f32_kernel, which converts blocks of w
//   other floats   gemm_f32_kernel          gemm_f32_kernel    gemm_f32_kernel
//   integer codes  tiles, w made bf16       integers (quant_matmul.h)
//   float codes    tiles, w made bf16       gemm_f32_kernel, which makes blocks of w f32
//
// but those of an expert of integer codes, which are integers everywhere: a prefill's chunks share out its
// rows.
namespace lariat::cpu {

struct GemmKernel {
  int64_t panel;   // rows of x that one packed panel holds
  int64_t w_rows;  // rows of w in a register tile: blocks of w are multiples of it
  DType dtype;     // of packed x and of w
  // Packs a block of columns of at most `panel` rows of x. `round`: to bf16 first.
  void (*pack)(const Matrix& x, bool round, void* packed);
  // out = packed x times w^T, or added to out. out.rows: the rows that were packed; out.cols = w.rows.
  void (*multiply)(const void* packed, const Matrix& w, bool accumulate, const Matrix& out);
};

const GemmKernel& gemm_f32_kernel();   // any processor
const GemmKernel& gemm_bf16_kernel();  // only where has_avx512_bf16()

// Writes (or adds) a register tile to the output. A kernel's vectors run over rows of x, the output's rows
// over rows of w: tile[o * tile_stride + t] -> out[t * out_stride + o].
inline void store_transposed(const float* __restrict tile, int64_t tile_stride, int64_t x_rows,
                             int64_t w_rows, bool accumulate, float* __restrict out, int64_t out_stride) {
  for (int64_t t = 0; t < x_rows; ++t) {
    float* to = out + t * out_stride;
    if (accumulate) {
      for (int64_t o = 0; o < w_rows; ++o) to[o] += tile[o * tile_stride + t];
    } else {
      for (int64_t o = 0; o < w_rows; ++o) to[o] = tile[o * tile_stride + t];
    }
  }
}

// The rows of w in register tiles of each height in turn, as many as there are full ones: multiply(height,
// the rows, their columns of out).
template <int... kHeights, class Multiply>
void for_row_tiles(const Matrix& w, const Matrix& out, const Multiply& multiply) {
  int64_t o = 0;
  const auto tiles = [&]<int kRows>(std::integral_constant<int, kRows> height) {
    for (; o + kRows <= w.rows; o += kRows) {
      multiply(height, w.row_range(o, kRows), out.column_range(o, kRows));
    }
  };
  (tiles(std::integral_constant<int, kHeights>()), ...);
}

// Multiplies and adds in registers alone, with the instruction of the bf16 kernel: `repetitions` of a dozen
// independent ones. Returns the operations done. For measure_cpu_limits.
double bf16_multiply_adds(int64_t repetitions, float* sink);

// The same products as gemm() on tile registers (amx_product.h), and the rate of their instruction. Only
// where has_amx_bf16(), and with weights that tiles take: tiled and quantised ones.
extern void (*gemm_amx)(const Matrix& x, std::span<const Product> products, void* scratch,
                        int threads);  // tests exchange it for one on emulated tiles
double amx_multiply_adds(int64_t repetitions, float* sink);

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) for each product, as Backend::linear has it, and the scratch
// memory it needs. The weights are of one dtype, or all quantised; those of integer codes only where
// has_amx_bf16().
void gemm(const Matrix& x, std::span<const Product> products, DType compute, void* scratch, int threads);
size_t gemm_scratch_bytes(const Matrix& x, std::span<const Product> products, DType compute, int threads);

}  // namespace lariat::cpu
