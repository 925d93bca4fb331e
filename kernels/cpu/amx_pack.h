#pragma once
#include "kernels/cpu/quant_block.h"
#include "kernels/tensor.h"

// Packing of rows to and from tiles: 1 KiB each, 16 rows of 64 bytes (amx_tiles.h), aligned to 64 bytes.
namespace lariat::cpu {

// to[c][r] = from[r][c] for a tile of 16 x 16 32-bit words; from_stride in words.
void transpose_words(const void* from, int64_t from_stride, void* to);

// Packs at most 16 rows of floats, rounded to bf16, into tiles of 32 columns, `tile_stride` bytes apart, with
// rows `row_stride` bytes apart; zeros pad the last tile's columns.
void pack_rows(const Matrix& x, char* to, int64_t tile_stride, int64_t row_stride = 64);

// Packs at most 32 bf16 rows into a panel of a tiled matrix: [step of 32 columns][2 tiles of 16 rows], each
// tile [pair of columns][row][2], padded with zeros.
void pack_panel(const Matrix& rows, void* panel);

// Dequantizes group `group` of a block of 16 rows to a tile in the order of transpose_words(), to[pair of
// inputs][row][2], rounded to bf16.
void dequantize_tile(const QuantBlock& of_block, const uint8_t* block, int64_t group, void* to);

// Stores 2 x 2 f32 tiles to out, at most 32 rows and columns. Whole cache lines bypass the caches: other
// threads may read after store_fence() only.
void store_tiles(const char* tiles, const Matrix& out);
void store_fence();

}  // namespace lariat::cpu
