#pragma once
#include <xmmintrin.h>

#include <algorithm>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/integers.h"
#include "kernels/tensor.h"

// What the product on tiles (amx_product.h) does with one block of 2 x 2 tiles of sums, and how it gets the
// operands of the next ones in time.
namespace lariat::cpu {

constexpr int64_t kAmxBlock = 2 * kTileRows;  // rows of w and of x in a block of sums
constexpr int64_t kAmxBlockBytes = 4 * kTileBytes;

// to[c][r] = from[r][c] for 16 x 16 words of 32 bits; strides in words.
inline void transpose_words(const void* from, int64_t from_stride, void* to, int64_t to_stride) {
  const auto* source = static_cast<const float*>(from);
  auto* target = static_cast<float*>(to);
  for (int64_t c = 0; c < 16; c += 4) {
    for (int64_t r = 0; r < 16; r += 4) {
      const float* s = source + r * from_stride + c;
      __m128 row[4];
      for (int i = 0; i < 4; ++i) row[i] = _mm_loadu_ps(s + i * from_stride);
      _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
      float* t = target + c * to_stride + r;
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(t + i * to_stride, row[i]);
    }
  }
}

// Fetches rows of memory into the second-level cache, in equal parts.
template <class Tiles>
class FetchAhead {
 public:
  FetchAhead() = default;
  FetchAhead(const void* first, int64_t rows, int64_t bytes, int64_t stride, int64_t steps)
      : next_(static_cast<const char*>(first)),
        rows_(rows),
        bytes_(bytes),
        stride_(stride),
        step_(ceil_div(rows, steps)) {}

  void step() {
    const int64_t rows = std::min(step_, rows_);
    for (int64_t r = 0; r < rows; ++r, next_ += stride_) {
      const auto into_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(next_) % 64);
      for (int64_t b = -into_line; b < bytes_; b += 64) Tiles::fetch(next_ + b);
    }
    rows_ -= rows;
  }

 private:
  const char* next_ = nullptr;
  int64_t rows_ = 0, bytes_ = 0, stride_ = 0, step_ = 0;
};

// sums (four tiles: w tile, x tile) += a block of 32 rows of w times one of 32 rows of x; both packed as
// [tile of columns][2 tiles].
template <class Tiles>
void multiply_amx_block(const char* w, const char* x, int64_t tiles, bool first, char* sums) {
  constexpr int64_t kRow = 64;
  if (first) {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  } else {
    Tiles::template load<0>(sums, kRow);
    Tiles::template load<1>(sums + kTileBytes, kRow);
    Tiles::template load<2>(sums + 2 * kTileBytes, kRow);
    Tiles::template load<3>(sums + 3 * kTileBytes, kRow);
  }
  for (int64_t t = 0; t < tiles; ++t, w += 2 * kTileBytes, x += 2 * kTileBytes) {
    Tiles::template load<4>(w, kRow);
    Tiles::template load<6>(x, kRow);
    Tiles::template dot<0, 4, 6>();
    Tiles::template load<7>(x + kTileBytes, kRow);
    Tiles::template dot<1, 4, 7>();
    Tiles::template load<5>(w + kTileBytes, kRow);
    Tiles::template dot<2, 5, 6>();
    Tiles::template dot<3, 5, 7>();
  }
  Tiles::template store<0>(sums, kRow);
  Tiles::template store<1>(sums + kTileBytes, kRow);
  Tiles::template store<2>(sums + 2 * kTileBytes, kRow);
  Tiles::template store<3>(sums + 3 * kTileBytes, kRow);
}

// A block of sums -> out, which may have fewer rows and columns.
inline void store_amx_block(const char* sums, const Matrix& out) {
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t a = 0; a < 2; ++a) {
      const auto* tile = reinterpret_cast<const float*>(sums + (2 * a + b) * kTileBytes);
      const int64_t rows = std::min(kTileRows, out.rows - b * kTileRows);
      const int64_t cols = std::min(kTileRows, out.cols - a * kTileRows);
      if (rows <= 0 || cols <= 0) continue;
      float* to = out.f32(b * kTileRows) + a * kTileRows;
      if (rows == kTileRows && cols == kTileRows) {
        transpose_words(tile, kTileRows, to, out.stride);
      } else {
        store_transposed(tile, kTileRows, rows, cols, false, to, out.stride);
      }
    }
  }
}

}  // namespace lariat::cpu
