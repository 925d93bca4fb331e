#pragma once
#include <algorithm>
#include <span>

#include "kernels/integers.h"
#include "kernels/weight.h"

namespace lariat::cpu {

// Most rows of x for which weights stream unpacked (decode steps); for more rows packing pays off (gemm.h).
inline constexpr int64_t kGemvRows = 8;

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) for each product; x f32 or bf16, w and bias any dtype, out
// f32. Reads each weight once; threads share the rows of all products. A row's result depends neither on the
// number of rows nor on the threads.
void gemv(const Matrix& x, std::span<const Product> products, int threads);

// Output columns [first, last) of one product without bias; both multiples of gemv_unit, except at the end. A
// tiled w requires x from rounded_rows() (convert_rows.h).
void gemv_columns(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last);
constexpr int64_t gemv_unit(const Matrix& w) { return w.tiled ? kTiledBlock : 1; }

// Panels [first, last) of a tiled w, on tile registers (multiply_few_rows in amx_product.h).
extern void (*gemv_amx)(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first,
                        int64_t last);  // tests replace it

// gemv_columns for bf16 x and w; requires has_avx512_bf16().
void gemv_bf16(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last);

// Dot::block<kX, kW>(x, w, w_distance, once, out, out_distance, out_stride) multiplies kX rows of x by kW
// rows of w, w_distance elements apart and not read again if `once`; products go to out[a * out_stride + b *
// out_distance].

// All rows of x times the same kW rows of w, cached from the second block of x on.
template <typename Dot, int kW, typename T>
void dot_rows(const Matrix& x, const T* w, int64_t w_distance, float* out, int64_t out_distance,
              int64_t out_stride) {
  constexpr int64_t kBlock = 4;
  const bool once = x.rows <= kBlock;
  for (int64_t a = 0; a < x.rows; a += kBlock) {
    const int64_t rows = std::min(kBlock, x.rows - a);
    const Matrix part = x.row_range(a, rows);
    with_count<kBlock>(rows, [&](auto count) {
      Dot::template block<count, kW>(part, w, w_distance, once, out + a * out_stride, out_distance,
                                     out_stride);
    });
  }
}

// Output columns [first, last) in kStreams long streams. Four neighbouring rows at a time are a third slower
// (42 vs 67 GB/s with two threads).
template <typename Dot, typename T>
void gemv_range(const Matrix& x, const T* w, int64_t w_stride, const Matrix& out, int64_t first,
                int64_t last) {
  constexpr int kStreams = 4;
  const int64_t run = (last - first) / kStreams;
  for (int64_t o = first; o < first + run; ++o) {
    dot_rows<Dot, kStreams>(x, w + o * w_stride, run * w_stride, out.f32() + o, run, out.stride);
  }
  for (int64_t o = first + run * kStreams; o < last; ++o) {
    dot_rows<Dot, 1>(x, w + o * w_stride, w_stride, out.f32() + o, 1, out.stride);
  }
}

}  // namespace lariat::cpu
