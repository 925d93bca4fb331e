#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "kernels/integers.h"
#include "kernels/tensor.h"

// Weights in groups of small integers (DType::kQ8, kQ4), made at load from any float matrix. 32 consecutive
// inputs of one output share a scale, as in llama.cpp's Q8_0 and Q4_0 (ggml/src/ggml-quants.c), and products
// are made of integers: x is quantised to 8 bits in the same groups, just before the product.
//
//   w[o][i]   ~ scale[o][g] (q[o][i] - zero)              g = i / 32; zero = 128 (q8), 8 (q4)
//   x[t][i]   ~ x_scale[t][g] x_q[t][i]                   x_scale = max |x| / 127, |x_q| <= 127
//   out[t][o] = sum_g scale[o][g] x_scale[t][g] S,        S = sum_{i in g} (q - zero) x_q, an exact integer
//
// q8: scale = max |w| / 127 rounded up to bf16, q - zero = round(w / scale): |error| <= scale / 2.
// q4: scale = (the weight of largest magnitude) / -8, so that it is exact to the scale's rounding and the
//     other sign loses half a step at most; q - zero = round(w / scale) in [-8, 7], as Q4_0. A least-squares
//     scale has an error 11 % smaller, and a worse perplexity: it shrinks what stands out.
// Scales are bf16, not f16: no weight that a float checkpoint can hold over- or underflows, the integers are
// chosen for the scale as it is stored, and a shift widens it. A group whose largest weight is below 2^-100
// is zero; one with an infinity or a NaN has a NaN scale. The same holds for groups of x.
//
// Memory: 8.5 (4.5) bits per weight, in the order in which VPDPBUSD eats it. Tiles of 16 outputs; a tile is a
// sequence of blocks of 64 inputs, absent inputs and outputs being zero:
//
//   block: [2 groups][16 outputs] scales (64 bytes), then [2 groups] of
//     q8: [8 quads][16 outputs][4 inputs] bytes
//     q4: [4 quads][16 outputs][4 inputs] bytes, inputs 0 .. 15 in the low nibbles, 16 .. 31 in the high ones
//
// A vector holds four inputs of all outputs of a tile, so that sums need no reduction across lanes, and
// everything is aligned to 64 bytes and read once, in order.
namespace lariat {

inline constexpr int64_t kQuantGroup = 32;  // inputs that share a scale
inline constexpr int64_t kQuantRows = 16;   // outputs in a tile
inline constexpr int64_t kQuantBlock = 64;  // inputs in a block of a tile
inline constexpr float kQuantSmallest = 0x1p-100F;

struct QuantLayout {
  DType dtype;  // kQ8 or kQ4
  int64_t rows, cols;

  explicit QuantLayout(const Matrix& m) : dtype(m.dtype), rows(m.rows), cols(m.cols) {}
  QuantLayout(DType dtype_, int64_t rows_, int64_t cols_) : dtype(dtype_), rows(rows_), cols(cols_) {}

  int64_t tiles() const { return ceil_div(rows, kQuantRows); }
  int64_t blocks() const { return ceil_div(cols, kQuantBlock); }
  int64_t scale_bytes() const { return kQuantBlock / kQuantGroup * kQuantRows * 2; }
  int64_t group_bytes() const { return kQuantRows * kQuantGroup / (dtype == DType::kQ8 ? 1 : 2); }
  int64_t block_bytes() const { return scale_bytes() + kQuantBlock / kQuantGroup * group_bytes(); }
  int64_t tile_bytes() const { return blocks() * block_bytes(); }
  size_t bytes() const { return static_cast<size_t>(tiles() * tile_bytes()); }
  int zero() const { return dtype == DType::kQ8 ? 128 : 8; }

  // Where, from the start of the matrix: the scale of an element's group, and its byte (q4: and nibble).
  int64_t scale_at(int64_t row, int64_t col) const {
    return block_at(row, col) + ((col % kQuantBlock) / kQuantGroup * kQuantRows + row % kQuantRows) * 2;
  }
  int64_t value_at(int64_t row, int64_t col) const {
    const int64_t in_group = col % kQuantGroup, half = kQuantGroup / 2;
    const int64_t at = dtype == DType::kQ8 ? in_group : in_group % half;
    return block_at(row, col) + scale_bytes() + (col % kQuantBlock) / kQuantGroup * group_bytes() +
           (at / 4 * kQuantRows + row % kQuantRows) * 4 + at % 4;
  }
  bool in_high_nibble(int64_t col) const {
    return dtype == DType::kQ4 && col % kQuantGroup >= kQuantGroup / 2;
  }

 private:
  int64_t block_at(int64_t row, int64_t col) const {
    return row / kQuantRows * tile_bytes() + col / kQuantBlock * block_bytes();
  }
};

// Bytes that a matrix of any dtype occupies, without gaps between rows.
size_t stored_bytes(const Matrix& m);

// A positive f32 rounded up to the next bf16 (its bits): the scale that covers all of a group.
constexpr uint16_t bf16_above(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0xffffU) >> 16);
}

// dst (quantised) = src (floats), both in host memory; dst.data: QuantLayout(dst).bytes(). One value at a
// time; the vector version (kernels/cpu/quantize.cpp) must agree with it bit by bit.
void quantize(const Matrix& src, const Matrix& dst);

// Element (row, col) of a quantised matrix in host memory.
float dequantized(const Matrix& m, int64_t row, int64_t col);

// Quantises a group of at most kQuantGroup inputs: count values of x -> q, and returns their scale.
float quantize_inputs(const float* x, int64_t count, int8_t* q);

}  // namespace lariat
