#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/integers.h"
#include "kernels/tensor.h"

// Group-wise quantized weights (DType::kQ8, kQ4), as published or quantized at load. Consecutive inputs of an
// output share a scale and an optional minimum (Grouping):
//
//   w[o][i]   = scale[o][i / size] v(q[o][i]) (+ minimum[o][i / size])
//   v(q)      = q - zero, zero = 128 (8 bits), 8 (4 bits), ..., or 0 with a minimum; or code_table()[q]
//
// Integer codes use integer dot products of x quantized to 8 bits in groups of 32. With g = i / 32 and the
// exact integers S = sum v(q) x_q, X = sum x_q over the inputs of g with one scale (all or half of g):
//
//   x[t][i]   ~ x_scale[t][g] x_q[t][i]                    x_scale = max |x| / 127, |x_q| <= 127
//   out[t][o] = sum scale[o] x_scale[t] S (+ minimum[o] x_scale[t] X)
//
// Activations of 16 bits (Backend::use_activations) add the same product of the rest, x - x_scale x_q, also
// in 8 bits: |error of x| <= max |x| / 64516 in each group instead of max |x| / 254.
//
// Float codes multiply unquantized x. A group with an FP8 NaN gets a NaN scale.
//
// Formats of quantize(): 32 inputs, bf16 scale, no minimum, as Q8_0 and Q4_0 of llama.cpp (ggml-quants.c).
// q8: scale = max |w| / 127 rounded up to bf16, q - zero = round(w / scale): |error| <= scale / 2.
// q4: scale = (weight of largest magnitude) / -8: this weight is exact to the rounding of the scale, and the
//     opposite sign errs by at most one step; q - zero = round(w / scale) in [-8, 7]. A least-squares scale
//     shrinks outliers: 11 % less error, but a worse perplexity.
// bf16 scales never over- or underflow for float checkpoints, and a shift widens them. Values are rounded for
// the stored scale. A group below 2^-100 is zero; a group with an infinity or a NaN has a NaN scale. Groups
// of x follow the same rules.
//
// Memory layout, for VPDPBUSD: tiles of 16 outputs, each of blocks of Grouping::block inputs, zero-padded:
//
//   block: scale data, padded to 64 bytes, then for each 32 inputs
//     the lines, [16 outputs][4 inputs] bytes, of one or two planes:
//     8 bits: 8 + 0, 6: 4 + 2, 5: 4 + 1, 4: 4 + 0, 3: 2 + 1, 2: 2 + 0 bits of each value, the lowest first
//     a plane of p bits has p lines; inputs 4 j .. 4 j + 3 are in line j % p, from bit j / p * p of a byte on
//   scale data: [block / size][16 outputs] scales, then minima in the same shape;
//     nested: [16 outputs] f16 for the scales and for the minima, then both as int8
//     pairs: the same, then one byte for both, the scale in the lower half
//
// A vector holds four inputs of all outputs of a tile: sums need no reduction across lanes. Data is aligned
// to 64 bytes and read in order. Formats of quantize() take 8.5 and 4.5 bits per weight.
namespace lariat {

inline constexpr int64_t kQuantGroup = 32;  // inputs
inline constexpr int64_t kQuantRows = 16;   // outputs per tile
inline constexpr int64_t kQuantBlock = 64;  // inputs, in the formats of quantize()
inline constexpr float kQuantSmallest = 0x1p-100F;

// Bits [first, first + bits) of each value.
struct QuantPlane {
  int bits, first;
  constexpr uint8_t mask() const { return static_cast<uint8_t>((1 << bits) - 1); }
  // Byte in a group of the line with four inputs, and their lowest bit.
  constexpr int64_t line(int64_t quad) const { return (first + quad % bits) * kQuantRows * 4; }
  constexpr int shift(int64_t quad) const { return static_cast<int>(quad / bits) * bits; }
};

// The second plane has no bits if one plane has all.
constexpr std::array<QuantPlane, 2> planes_of(int bits) {
  const int low = static_cast<int>(std::bit_floor(static_cast<unsigned>(bits)));
  return {{{low, 0}, {bits - low, low}}};
}

struct QuantLayout {
  WeightFormat format;
  int64_t rows, cols;

  explicit QuantLayout(const Matrix& m) : QuantLayout(m.format(), m.rows, m.cols) {}
  QuantLayout(const WeightFormat& format_, int64_t rows_, int64_t cols_)
      : format(format_), rows(rows_), cols(cols_) {}

  bool bytes_wide() const { return format.dtype == DType::kQ8; }
  bool pairs() const { return format.grouping.scales == ScaleType::kPairs; }
  bool nested() const { return is_nested(format.grouping.scales); }
  int64_t size() const { return format.grouping.size; }
  int64_t block() const { return format.grouping.block; }
  int64_t tiles() const { return ceil_div(rows, kQuantRows); }
  int64_t blocks() const { return ceil_div(cols, block()); }
  int64_t groups() const { return blocks() * (block() / kQuantGroup); }  // of 32 inputs, per output
  int64_t scales() const { return ceil_div(cols, size()); }              // per output
  int64_t outer_bytes() const { return nested() ? kQuantRows * 2 * kinds() : 0; }
  // Bytes from a block's (inner) scales to its minima.
  int64_t inner_bytes() const { return pairs() ? 0 : kind_bytes(); }
  int64_t scale_bytes() const {
    return round_up(outer_bytes() + (pairs() ? 1 : kinds()) * kind_bytes(), int64_t{64});
  }
  int64_t group_bytes() const { return kQuantRows * kQuantGroup * bits() / 8; }
  int64_t block_bytes() const { return scale_bytes() + block() / kQuantGroup * group_bytes(); }
  int64_t tile_bytes() const { return blocks() * block_bytes(); }
  size_t bytes() const { return static_cast<size_t>(tiles() * tile_bytes()); }
  int bits() const { return format.grouping.bits > 0 ? format.grouping.bits : bytes_wide() ? 8 : 4; }
  int zero() const { return format.grouping.minimum ? 0 : 1 << (bits() - 1); }
  int64_t scale_width() const {
    const ScaleType type = format.grouping.scales;
    return type == ScaleType::kF32 ? 4 : nested() ? 1 : 2;
  }

  // Byte offsets of an element's (inner) scale, with its minimum inner_bytes() later; of its outer scale,
  // with its minimum kQuantRows f16 later; of its byte in the first line of its group.
  int64_t scale_at(int64_t row, int64_t col) const {
    return block_at(row, col) + outer_bytes() +
           (col % block() / size() * kQuantRows + row % kQuantRows) * scale_width();
  }
  int64_t outer_at(int64_t row, int64_t col) const { return block_at(row, col) + row % kQuantRows * 2; }
  int64_t value_at(int64_t row, int64_t col) const {
    return block_at(row, col) + scale_bytes() + (col % block()) / kQuantGroup * group_bytes() +
           row % kQuantRows * 4 + col % 4;
  }

  // An element's quantized value; put() expects zeros in its place.
  uint8_t value(const uint8_t* bytes, int64_t row, int64_t col) const {
    int q = 0;
    for_bits(row, col, [&](const QuantPlane& plane, int64_t at, int shift) {
      q |= (bytes[at] >> shift & plane.mask()) << plane.first;
    });
    return static_cast<uint8_t>(q);
  }
  void put(int q, int64_t row, int64_t col, uint8_t* bytes) const {
    for_bits(row, col, [&](const QuantPlane& plane, int64_t at, int shift) {
      bytes[at] |= static_cast<uint8_t>((q >> plane.first & plane.mask()) << shift);
    });
  }

 private:
  template <class Body>
  void for_bits(int64_t row, int64_t col, const Body& body) const {
    const int64_t at = value_at(row, col), quad = col % kQuantGroup / 4;
    for (const QuantPlane& plane : planes_of(bits())) {
      if (plane.bits > 0) body(plane, at + plane.line(quad), plane.shift(quad));
    }
  }
  int64_t kinds() const { return format.grouping.minimum ? 2 : 1; }
  int64_t kind_bytes() const { return block() / size() * kQuantRows * scale_width(); }  // scales, or minima
  int64_t block_at(int64_t row, int64_t col) const {
    return row / kQuantRows * tile_bytes() + col / block() * block_bytes();
  }
};

// Values of the 16 4-bit codes: integers for kE2M1 (doubled) and kIq4, floats for kNf4 and kFp4.
std::span<const float, 16> code_table(Code code);

// v(q) of a byte or nibble q.
float code_value(const WeightFormat& format, uint8_t q);

size_t stored_bytes(const Matrix& m);

// Smallest bf16 (its bits) at or above a positive f32.
constexpr uint16_t bf16_above(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0xffffU) >> 16);
}

// Quantizes src (floats) to dst (a format of quantize()), one value at a time. dst.data has
// QuantLayout(dst).bytes() bytes. kernels/cpu/quantize.cpp must be bitwise identical.
void quantize(const Matrix& src, const Matrix& dst);

// Element of a quantized matrix in host memory.
float dequantized(const Matrix& m, int64_t row, int64_t col);

// Quantizes count <= kQuantGroup values of x to q and returns their scale.
float quantize_inputs(const float* x, int64_t count, int8_t* q);

}  // namespace lariat
