#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/integers.h"
#include "kernels/tensor.h"

// Weights in groups of codes (DType::kQ8, kQ4), as a published format has them or made at load from any float
// matrix. Consecutive inputs of one output share a scale and perhaps a minimum (Grouping):
//
//   w[o][i]   = scale[o][i / size] v(q[o][i]) (+ minimum[o][i / size])
//   v(q)      = q - zero, zero = 128 (8 bits), 8 (4 bits), or 0 where there is a minimum; or code_table()[q]
//
// Products of codes that stand for integers are made of integers: x is quantised to 8 bits in groups of 32,
// just before the product. With g = i / 32 and S = sum v(q) x_q, an exact integer, over what of a group
// shares a scale (all of it, or half), X = sum x_q over the same:
//
//   x[t][i]   ~ x_scale[t][g] x_q[t][i]                    x_scale = max |x| / 127, |x_q| <= 127
//   out[t][o] = sum scale[o] x_scale[t] S (+ minimum[o] x_scale[t] X)
//
// Codes that stand for floats are multiplied by x as it is. A group with a NaN among its codes of 8-bit
// floats has a NaN for a scale.
//
// Forms that are made here, of 32 inputs with a bf16 scale and no minimum, as in llama.cpp's Q8_0 and Q4_0
// (ggml/src/ggml-quants.c):
// q8: scale = max |w| / 127 rounded up to bf16, q - zero = round(w / scale): |error| <= scale / 2.
// q4: scale = (the weight of largest magnitude) / -8, so that it is exact to the scale's rounding and the
//     other sign loses half a step at most; q - zero = round(w / scale) in [-8, 7], as Q4_0. A least-squares
//     scale has an error 11 % smaller, and a worse perplexity: it shrinks what stands out.
// Scales are bf16, not f16: no weight that a float checkpoint can hold over- or underflows, the integers are
// chosen for the scale as it is stored, and a shift widens it. A group whose largest weight is below 2^-100
// is zero; one with an infinity or a NaN has a NaN scale. The same holds for groups of x.
//
// Memory, in the order in which VPDPBUSD eats it: tiles of 16 outputs; a tile is a sequence of blocks of
// Grouping::block inputs, absent inputs and outputs being zero:
//
//   block: what scales it, padded to 64 bytes, then for each 32 inputs
//     q8: [8 quads][16 outputs][4 inputs] bytes
//     q4: [4 quads][16 outputs][4 inputs] bytes, inputs 0 .. 15 in the low nibbles, 16 .. 31 in the high ones
//   what scales it: [block / size][16 outputs] scales, then as many minima;
//     nested: [16 outputs] f16 for the scales and for the minima, then the two as int8
//
// A vector holds four inputs of all outputs of a tile, so that sums need no reduction across lanes, and
// everything is aligned to 64 bytes and read once, in order. The forms above take 8.5 and 4.5 bits per
// weight.
namespace lariat {

inline constexpr int64_t kQuantGroup = 32;  // inputs that share a scale
inline constexpr int64_t kQuantRows = 16;   // outputs in a tile
inline constexpr int64_t kQuantBlock = 64;  // inputs in a block of the forms that are made here
inline constexpr float kQuantSmallest = 0x1p-100F;

struct QuantLayout {
  WeightFormat form;
  int64_t rows, cols;

  explicit QuantLayout(const Matrix& m) : QuantLayout(m.form(), m.rows, m.cols) {}
  QuantLayout(const WeightFormat& form_, int64_t rows_, int64_t cols_)
      : form(form_), rows(rows_), cols(cols_) {}

  bool bytes_wide() const { return form.dtype == DType::kQ8; }
  bool nested() const { return form.grouping.scales == ScaleType::kNested; }
  int64_t size() const { return form.grouping.size; }
  int64_t block() const { return form.grouping.block; }
  int64_t tiles() const { return ceil_div(rows, kQuantRows); }
  int64_t blocks() const { return ceil_div(cols, block()); }
  int64_t groups() const { return blocks() * (block() / kQuantGroup); }  // of 32 inputs, in an output
  int64_t scales() const { return ceil_div(cols, size()); }              // of an output
  int64_t outer_bytes() const { return nested() ? kQuantRows * 2 * kinds() : 0; }
  // Of the scales, or minima, of a block.
  int64_t inner_bytes() const { return block() / size() * kQuantRows * scale_width(); }
  int64_t scale_bytes() const { return round_up(outer_bytes() + kinds() * inner_bytes(), int64_t{64}); }
  int64_t group_bytes() const { return kQuantRows * kQuantGroup / (bytes_wide() ? 1 : 2); }
  int64_t block_bytes() const { return scale_bytes() + block() / kQuantGroup * group_bytes(); }
  int64_t tile_bytes() const { return blocks() * block_bytes(); }
  size_t bytes() const { return static_cast<size_t>(tiles() * tile_bytes()); }
  int zero() const { return form.grouping.minimum ? 0 : bytes_wide() ? 128 : 8; }
  int64_t scale_width() const {
    const ScaleType type = form.grouping.scales;
    return type == ScaleType::kF32 ? 4 : type == ScaleType::kNested ? 1 : 2;
  }

  // Where, from the start of the matrix: an element's scale (nested: the inner one; its minimum:
  // inner_bytes() further), the outer one (its minimum: kQuantRows further), and its byte (q4: and nibble).
  int64_t scale_at(int64_t row, int64_t col) const {
    return block_at(row, col) + outer_bytes() +
           (col % block() / size() * kQuantRows + row % kQuantRows) * scale_width();
  }
  int64_t outer_at(int64_t row, int64_t col) const { return block_at(row, col) + row % kQuantRows * 2; }
  int64_t value_at(int64_t row, int64_t col) const {
    const int64_t in_group = col % kQuantGroup, half = kQuantGroup / 2;
    const int64_t at = bytes_wide() ? in_group : in_group % half;
    return block_at(row, col) + scale_bytes() + (col % block()) / kQuantGroup * group_bytes() +
           (at / 4 * kQuantRows + row % kQuantRows) * 4 + at % 4;
  }
  bool in_high_nibble(int64_t col) const { return !bytes_wide() && col % kQuantGroup >= kQuantGroup / 2; }

 private:
  int64_t kinds() const { return form.grouping.minimum ? 2 : 1; }  // scales alone, or minima too
  int64_t block_at(int64_t row, int64_t col) const {
    return row / kQuantRows * tile_bytes() + col / block() * block_bytes();
  }
};

// What the 16 codes of 4 bits stand for: kE2M1 (twice the format's numbers) and kIq4 for integers, kNf4,
// kFp4.
std::span<const float, 16> code_table(Code code);

// v of a code, a byte or a nibble.
float code_value(const WeightFormat& form, uint8_t q);

// Bytes that a matrix of any dtype occupies, without gaps between rows.
size_t stored_bytes(const Matrix& m);

// A positive f32 rounded up to the next bf16 (its bits): the scale that covers all of a group.
constexpr uint16_t bf16_above(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0xffffU) >> 16);
}

// dst (quantised, of one of the forms that are made here) = src (floats), both in host memory; dst.data:
// QuantLayout(dst).bytes(). One value at a time; the vector version (kernels/cpu/quantize.cpp) must agree
// with it bit by bit.
void quantize(const Matrix& src, const Matrix& dst);

// Element (row, col) of a quantised matrix in host memory.
float dequantized(const Matrix& m, int64_t row, int64_t col);

// Quantises a group of at most kQuantGroup inputs: count values of x -> q, and returns their scale.
float quantize_inputs(const float* x, int64_t count, int8_t* q);

}  // namespace lariat
