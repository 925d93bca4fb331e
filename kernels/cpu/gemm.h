#pragma once
#include <span>

#include "kernels/integers.h"
#include "kernels/weight.h"

// Matrix product for many rows of x (prefill). gemm.cpp splits the product into blocks that fit L2; a
// GemmKernel multiplies one block. Only x is packed:
//
//   packed x:  panels of `panel` rows, each [k][panel] (16-bit: [k/2][panel][2]), so that a vector holds one
//              column of x for consecutive rows
//   w:         read in place, one value (16-bit: one pair) of a row broadcast to all lanes
//
// Weights of the kernel's dtype are not copied. AMX has its own driver (gemm_amx) with packed w.
//
// Kernels for more than kGemvRows rows of x (gemv.h handles fewer rows):
//
//   w, compute     AMX                      AVX-512 BF16       everything else
//   bf16, bf16     tiles                    gemm_bf16_kernel   gemm_f32_kernel, converts blocks of w
//   other floats   gemm_f32_kernel          gemm_f32_kernel    gemm_f32_kernel
//   integer codes  tiles, w in bf16         integers (quant_matmul.h)
//   float codes    tiles, w in bf16         gemm_f32_kernel, converts blocks of w to f32
namespace lariat::cpu {

struct GemmKernel {
  int64_t panel;   // rows of x per packed panel
  int64_t w_rows;  // blocks of w are multiples of it
  DType dtype;     // of packed x and of w
  // Packs columns of at most `panel` rows of x; `round`: rounds to bf16 first.
  void (*pack)(const Matrix& x, bool round, void* packed);
  // out = (or +=) packed x times w^T. out.rows: packed rows; out.cols = w.rows.
  void (*multiply)(const void* packed, const Matrix& w, bool accumulate, const Matrix& out);
};

const GemmKernel& gemm_f32_kernel();   // any processor
const GemmKernel& gemm_bf16_kernel();  // requires has_avx512_bf16()

// Calls multiply(height, first row) for all register tiles of rows of w.
template <int... kHeights, class Multiply>
void for_row_tiles(int64_t w_rows, const Multiply& multiply) {
  int64_t o = 0;
  const auto tiles = [&]<int kRows>(std::integral_constant<int, kRows> height) {
    for (; o + kRows <= w_rows; o += kRows) multiply(height, o);
  };
  (tiles(std::integral_constant<int, kHeights>()), ...);
}

// A dozen independent multiply-adds in registers, `repetitions` times. Returns the operation count.
double bf16_multiply_adds(int64_t repetitions, float* sink);

// Operations per second of VDPBF16PS relative to f32 FMA (some Xeons 0.5, Zen 4 and others 2). Requires
// supports_avx512_bf16().
double bf16_dot_speedup();

// gemm() on tile registers (amx_product.h), and their rate. Requires has_amx_bf16() and tiled or quantized
// weights.
extern void (*gemm_amx)(const Matrix& x, std::span<const Product> products, void* scratch,
                        int threads);  // tests replace it
double amx_multiply_adds(int64_t repetitions, float* sink);

// Whether gemm() multiplies w on tile registers.
bool on_tiles(const Matrix& w);

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) for each product, and its scratch bytes. Weights have one
// dtype or are all quantized; integer codes require has_amx_bf16().
void gemm(const Matrix& x, std::span<const Product> products, DType compute, void* scratch, int threads);
size_t gemm_scratch_bytes(const Matrix& x, std::span<const Product> products, DType compute, int threads);

}  // namespace lariat::cpu
