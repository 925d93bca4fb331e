#pragma once
#include <array>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/tensor.h"

// Tiles multiply bf16 only. A float of more bits is the sum of a few bf16, its parts: each what is left of it
// by those before, rounded. bf16 has 8 bits, so that f16 (11) has two parts and f32 (24) three, and each part
// is at most 2^-8 of the one before. So a product of floats is a sum of products of parts, of which those are
// taken that are not below 2^-16 of the whole:
//
//   x     w      products   left out, of |x w|
//   f32   f32    6          2 * 2^-24 and less
//   f32   f16    5          2^-24
//   f32   bf16   3          nothing
//   bf16  f32    3          nothing (compute = kBF16: x is rounded, and is its only part)
//   bf16  f16    2          nothing
//   bf16  bf16   1          nothing
//
// That is the order of what one addition in f32 costs, and the sums need far fewer of those than one for each
// column, since the tiles add up 16 products at a time from zero: on the whole the error is smaller than that
// of f32 multiply-adds (tests/kernels/amx_test.cpp compares them). Subnormal parts and products are taken for
// zero: x w is off by some 2^-126 (|x| + |w| + 1) more.
//
// Quantised weights, q and a scale of 8 bits each, are rounded to bf16 and take one product with rounded x,
// whatever compute is: a product is off by up to 2^-9 (x) and 2^-9 (w) of itself, where the product of
// integers rounds x to 1/254 of the largest of 32.
namespace lariat::cpu {

// A part of x times a part of w, counted from the largest.
struct PartPair {
  int64_t x, w;
};

struct AmxParts {
  int64_t x, w;  // parts of each
  std::array<PartPair, 6> pairs{};
  int64_t n = 0;  // pairs in use

  AmxParts(int64_t x_parts, int64_t w_parts) : x(x_parts), w(w_parts) {
    // Each shares a part with the one before, whose tiles need not be loaded again, in any choice of them;
    // the largest comes last.
    constexpr PartPair kOrder[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
    for (const PartPair& pair : kOrder) {
      if (pair.x < x && pair.w < w) pairs[static_cast<size_t>(n++)] = pair;
    }
  }
  AmxParts(DType w_dtype, DType compute)
      : AmxParts(compute == DType::kBF16 || is_quantized(w_dtype) ? 1 : 3, parts_of(w_dtype)) {}

  static int64_t parts_of(DType dtype) {
    return dtype == DType::kBF16 || is_quantized(dtype) ? 1 : dtype == DType::kF16 ? 2 : 3;
  }
};

// The sums += all products of parts of the 2 tiles at a and the 2 at b, whose parts follow one another by
// a_part and b_part bytes. after(i): called behind the i-th of them.
template <class Tiles, class After>
void multiply_parts(const AmxParts& parts, const TilePlaces& a, int64_t a_part, const TilePlaces& b,
                    int64_t b_part, const After& after) {
  PartPair before{-1, -1};
  for (int64_t p = 0; p < parts.n; ++p) {
    const PartPair pair = parts.pairs[static_cast<size_t>(p)];
    const TilePlaces x{a.at + pair.x * a_part, a.stride, a.half, 0};
    const TilePlaces w{b.at + pair.w * b_part, b.stride, b.half, 0};
    if (pair.x == before.x) {
      multiply_step<Tiles, false, true>(x, w);
    } else if (pair.w == before.w) {
      multiply_step<Tiles, true, false>(x, w);
    } else {
      multiply_step<Tiles>(x, w);
    }
    before = pair;
    after(p);
  }
}

}  // namespace lariat::cpu
