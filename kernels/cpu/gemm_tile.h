#pragma once
#include <cstdint>

namespace lariat::cpu {

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

}  // namespace lariat::cpu
