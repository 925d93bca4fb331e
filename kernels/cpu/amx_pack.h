#pragma once
#include "kernels/tensor.h"

// What moves between rows in memory and tiles: 1 KiB each, 16 rows of 64 bytes (amx_tiles.h), aligned to 64.
namespace lariat::cpu {

// to[c][r] = from[r][c] for 16 x 16 words of 32 bits, a tile; from_stride in words.
void transpose_words(const void* from, int64_t from_stride, void* to);

// At most 16 rows of f32, rounded to bf16 -> tiles of 32 columns, `tile_stride` bytes apart; zeros where the
// last of them has no column.
void pack_rows(const Matrix& x, char* to, int64_t tile_stride);

// 2 x 2 tiles of f32 -> out, of at most 32 rows and columns; past the caches where its lines can be written
// whole, so that a fence is due before another thread reads it.
void store_tiles(const char* tiles, const Matrix& out);
void store_fence();

}  // namespace lariat::cpu
