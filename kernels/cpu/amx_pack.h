#pragma once
#include "kernels/cpu/quant_block.h"
#include "kernels/tensor.h"

// Moves between rows in memory and tiles: 1 KiB each, 16 rows of 64 bytes (amx_tiles.h), aligned to 64.
namespace lariat::cpu {

// to[c][r] = from[r][c] for 16 x 16 words of 32 bits, a tile; from_stride in words.
void transpose_words(const void* from, int64_t from_stride, void* to);

// Rows of floats, at most 16 of a tile -> tiles of 32 columns, `tile_stride` bytes apart, rows `row_stride`
// bytes apart, of values rounded to bf16; zeros where the last of them has no column.
void pack_rows(const Matrix& x, char* to, int64_t tile_stride, int64_t row_stride = 64);

// At most 32 rows of bf16 -> a panel of a tiled matrix, [step of 32 columns][2 tiles of 16 rows], each tile
// [pair of columns][row][2]; zeros where rows or columns are missing.
void pack_panel(const Matrix& rows, void* panel);

// Group `group` of a block of 16 rows of quantised weights -> a tile as transpose_words() makes it, to[pair
// of inputs][row][2], of weights rounded to bf16.
void dequantize_tile(const QuantBlock& of_block, const uint8_t* block, int64_t group, void* to);

// 2 x 2 tiles of f32 -> out, of at most 32 rows and columns; past the caches where its lines can be written
// whole, so that a fence is due before another thread reads it.
void store_tiles(const char* tiles, const Matrix& out);
void store_fence();

}  // namespace lariat::cpu
