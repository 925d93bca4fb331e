#pragma once
#include <cstdint>

#include "kernels/host_weight.h"

// Quantization to unsigned integers with scale and minimum, searched for the least squared error. The groups
// of 32 consecutive inputs of a block share two outer scales (as K-quants of llama.cpp):
//
//   w[i] ~ scale * S[g] * code[i] + minimum * M[g]      S in 0 .. 127, M in -127 .. 127, code in 0 .. largest
//
// Step 1 fits floats: codes are rounded for several step sizes around (max - min) / largest, and a
// least-squares line is fitted to each set of codes. The largest results give the block's outer scales. Step
// 2 fits integers: S is searched around the line's scale, with the best M for its codes. The squared error is
// a tenth lower than by min-max quantization. Codes are chosen last, which compensates the rounding of S and
// M: long blocks cost no accuracy.
namespace lariat {

inline constexpr int64_t kSearchGroup = 32;
inline constexpr int64_t kSearchBlock = 2048;  // most inputs with the same outer scales
inline constexpr int kLargestScale = 127;

// Inputs per block for rows of `cols`, a multiple of 64: the whole row up to kSearchBlock; for longer rows
// the size with the least padding, ties to the longest.
int64_t search_block(int64_t cols);

struct SearchedRow {
  uint8_t* codes;         // cols, rounded up to whole groups; padding is 0
  float *scale, *offset;  // S and M, one per group
  float *d, *dm;          // outer scales, one per block: non-negative f16 values
};

// Quantizes one row w. block: a multiple of 64 up to kSearchBlock. largest: the largest code, 15 or 255.
// Groups of equal values are exact to the rounding of M. A block with an infinity, a NaN, or weights beyond
// f16 scales (8e6) has NaN for d and dm. The result depends on the row only.
void search_row(const float* w, int64_t cols, int64_t block, int largest, const SearchedRow& out);

// Format of searched rows of `cols`, and floats in this format (4 or 8 bits), searched when a row is read.
WeightFormat searched_format(DType dtype, int64_t cols);
HostWeight searched(const Matrix& floats, const WeightFormat& format);

}  // namespace lariat
