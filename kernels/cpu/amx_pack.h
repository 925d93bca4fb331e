#pragma once
#include "kernels/cpu/quant_block.h"
#include "kernels/tensor.h"

// Packing of rows to and from tiles (amx_tiles.h), aligned to 64 bytes.
namespace lariat::cpu {

// to[c][r] = from[r][c] for a tile of 16 x 16 32-bit words; from_stride in words.
void transpose_words(const void* from, int64_t from_stride, void* to);

// Packs at most 16 rows of floats, rounded to bf16, into tiles of 32 columns, `tile_stride` bytes apart, with
// rows `row_stride` bytes apart, zero-padded.
void pack_rows(const Matrix& x, char* to, int64_t tile_stride, int64_t row_stride = 64);

// Packs at most 32 bf16 rows into a panel of a tiled matrix: [step of 32 columns][2 tiles of 16 rows], each
// tile [pair of columns][row][2], padded with zeros.
void pack_panel(const Matrix& rows, void* panel);

// Dequantizes a group of a block of 16 rows to a tile, to[pair of inputs][row][2], rounded to bf16.
void dequantize_tile(const QuantBlock& of_block, const uint8_t* block, int64_t group, void* to);

// Stores 2 x 2 f32 tiles to out, at most 32 rows and columns. Whole lines bypass the caches: other threads
// may read only after store_fence().
void store_tiles(const char* tiles, const Matrix& out);
void store_fence();

}  // namespace lariat::cpu
