#pragma once
#include <cstdint>

#include "kernels/host_weight.h"

// Weights in small unsigned codes with a scale and a minimum, searched for the smallest sum of squared
// errors. 32 consecutive inputs of an output are a group; the groups of a block share two outer scales, so
// that a group itself holds two small integers (as the K-quants of llama.cpp do):
//
//   w[i] ~ scale * S[g] * code[i] + minimum * M[g]      S in 0 .. 127, M in -127 .. 127, code in 0 .. largest
//
// A group is fitted in two steps. First by floats: codes are rounded for each of several steps, wider and
// narrower than (max - min) / largest, and each set of codes gets the line of least squares through its
// weights. The block's outer scales follow from the largest results. Then by integers: S is tried around what
// the line asks for, with the best M for its codes. That takes a tenth off the squared error of codes from
// the minimum to the maximum, and what rounding S and M costs is won back, since codes are chosen last. For
// the same reason blocks can be long: of 256 or of 2048 inputs, real models' errors are the same within 0.1
// %.
namespace lariat {

inline constexpr int64_t kSearchGroup = 32;
inline constexpr int64_t kSearchBlock = 2048;  // inputs that share outer scales, at most
inline constexpr int kLargestScale = 127;

// The inputs of a block for rows of `cols`, a multiple of 64: all of a row up to kSearchBlock; of a longer
// one the part that leaves the fewest absent inputs in the last block, then the longest part.
int64_t search_block(int64_t cols);

struct SearchedRow {
  uint8_t* codes;         // cols, rounded up to whole groups; those of absent inputs are 0
  float *scale, *offset;  // a group each: S and M
  float *d, *dm;          // a block each: the outer scales, floats that f16 holds; never negative
};

// w: one row. block: a multiple of 64 up to kSearchBlock. largest: the largest code, 15 or 255. Groups of
// equal values are exact to the rounding of M. A block with an infinity or a NaN, or with weights beyond what
// f16 scales reach (8e6), has NaN for d and dm. The result is a function of the row alone.
void search_row(const float* w, int64_t cols, int64_t block, int largest, const SearchedRow& out);

// The form of rows of `cols` that are searched here, and floats in that form, of 4 or 8 bits: each row is
// searched when it is read.
WeightFormat searched_form(DType dtype, int64_t cols);
HostWeight searched(const Matrix& floats, const WeightFormat& form);

}  // namespace lariat
