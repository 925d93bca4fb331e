#pragma once
#include <bit>

#include "kernels/cuda/device.h"
#include "kernels/quant.h"

// Quantized weights of any format on the device (kernels/quant.h).
namespace lariat::cuda {

inline constexpr int kCodeRows = kQuantRows;    // outputs per tile
inline constexpr int kCodeGroup = kQuantGroup;  // inputs with adjacent codes
inline constexpr int kCodeWarps = 8;            // warps that share a tile's chunks
inline constexpr int kChunk = 64;               // inputs; blocks of all formats are multiples

// How bits of a group's values share bytes: value by value, both halves of a group, or in planes.
enum class CodeWidth : uint8_t { kBytes, kNibbles, kPlanes };

// QuantPlane of each of four bytes.
struct Plane {
  int bits, first;
  uint32_t mask;

  // Byte in a group of the line with a quad of inputs.
  __device__ __forceinline__ int line(int quad) const {
    return (first + (quad & (bits - 1))) * (4 * kCodeRows);
  }
  // The quad's bits, at their place in the values.
  __device__ __forceinline__ uint32_t values(uint32_t word, int quad) const {
    return (word >> (quad & -bits) & mask) << first;
  }
};

// QuantLayout as kernel arguments.
struct Codes {
  Code code;
  ScaleType scales;
  CodeWidth width;
  bool minimum;
  int zero;                     // zero point of plain integers
  int size_bits;                // log2 of Grouping::size
  int chunks;                   // per block
  int step_chunks, step_bytes;  // step of kCodeWarps chunks: blocks, and remaining chunks
  uint32_t per_chunk;           // 2^31 / chunks, rounded up
  int scale_width, outer_bytes, inner_bytes, scale_bytes, group_bytes, block_bytes;
  int64_t tile_bytes;
  Plane planes[2];       // the second has no mask if one plane has all bits
  float table[16];       // values of all 4-bit codes
  uint32_t integers[4];  // the same as signed bytes, for integer codes
};

inline Codes codes_of(const Matrix& w) {
  const QuantLayout layout(w);
  Codes c = zeroed<Codes>();
  c.code = w.grouping.code;
  c.scales = w.grouping.scales;
  c.width = layout.bits() == 8   ? CodeWidth::kBytes
            : layout.bits() == 4 ? CodeWidth::kNibbles
                                 : CodeWidth::kPlanes;
  for (int i = 0; i < 2; ++i) {
    const QuantPlane plane = planes_of(layout.bits())[static_cast<size_t>(i)];
    c.planes[i] = {plane.bits, plane.first, plane.mask() * 0x01010101U};
    if (plane.bits == 0) c.planes[i] = {c.planes[0].bits, 0, 0};
  }
  c.minimum = w.grouping.minimum;
  c.zero = c.code == Code::kLinear ? layout.zero() : 0;
  c.size_bits = std::countr_zero(static_cast<unsigned>(layout.size()));
  c.chunks = static_cast<int>(layout.block() / kChunk);
  c.per_chunk = static_cast<uint32_t>(ceil_div<int64_t>(int64_t{1} << 31, c.chunks));
  c.scale_width = static_cast<int>(layout.scale_width());
  c.outer_bytes = static_cast<int>(layout.outer_bytes());
  c.inner_bytes = static_cast<int>(layout.inner_bytes());
  c.scale_bytes = static_cast<int>(layout.scale_bytes());
  c.group_bytes = static_cast<int>(layout.group_bytes());
  c.block_bytes = static_cast<int>(layout.block_bytes());
  c.step_chunks = kCodeWarps % c.chunks;
  c.step_bytes = kCodeWarps / c.chunks * c.block_bytes;
  c.tile_bytes = layout.tile_bytes();
  for (int q = 0; q < 16 && c.width == CodeWidth::kNibbles; ++q) {
    c.table[q] = code_value(w.format(), static_cast<uint8_t>(q));
    const auto byte = static_cast<uint8_t>(is_integer(c.code) ? static_cast<int>(c.table[q]) : 0);
    c.integers[q / 4] |= uint32_t{byte} << (q % 4 * 8);
  }
  return c;
}

// Block of a chunk, chunk / chunks, for fewer than 2^28 chunks.
__device__ __forceinline__ int block_of_chunk(const Codes& c, int chunk) {
  return static_cast<int>(uint64_t{static_cast<unsigned>(chunk)} * c.per_chunk >> 31);
}

// Chunk of a tile's inputs.
struct Chunk {
  const unsigned char* block;
  int number;

  __device__ __forceinline__ Chunk(const Codes& c, const unsigned char* tile, int chunk) {
    const int blocks = block_of_chunk(c, chunk);
    block = tile + int64_t{blocks} * c.block_bytes;
    number = chunk - blocks * c.chunks;
  }
  __device__ __forceinline__ void advance(const Codes& c) {  // by kCodeWarps
    block += c.step_bytes;
    number += c.step_chunks;
    if (number < c.chunks) return;
    number -= c.chunks;
    block += c.block_bytes;
  }
  template <CodeWidth kWidth>
  __device__ __forceinline__ const unsigned char* codes(const Codes& c) const {
    const int bytes = kWidth == CodeWidth::kPlanes    ? 2 * c.group_bytes
                      : kWidth == CodeWidth::kNibbles ? kChunk * kCodeRows / 2
                                                      : kChunk * kCodeRows;
    return block + c.scale_bytes + number * bytes;
  }
};

// As f16, an FP8 value is 2^-8 of its value; the NaN code would be finite.
__device__ __forceinline__ float e4m3(uint32_t q) {
  const uint32_t bits = q & 0x7fU;
  const float magnitude = bits == 0x7fU ? NAN : 256.0F * to_float(Half{static_cast<uint16_t>(bits << 7)});
  return (q & 0x80U) != 0 ? -magnitude : magnitude;
}

// small: the low byte is the nested integer, or the low half of a byte.
__device__ __forceinline__ float scale_of(ScaleType type, uint32_t bits, uint32_t small) {
  if (type == ScaleType::kF32) return bits_to_float(bits);
  const auto half = static_cast<uint16_t>(bits);
  if (type == ScaleType::kBF16) return to_float(BFloat16{half});
  const float value = to_float(Half{half});
  if (type == ScaleType::kPairs) return value * static_cast<float>(small & 15U);
  return type == ScaleType::kNested ? value * static_cast<float>(static_cast<int8_t>(small)) : value;
}

// shift: of a scale, or of a minimum, in the byte of a pair.
__device__ __forceinline__ float stored_scale(ScaleType type, const unsigned char* inner,
                                              const unsigned char* outer, int shift) {
  if (type == ScaleType::kF32) return scale_of(type, *reinterpret_cast<const uint32_t*>(inner), 0);
  const unsigned char* at = type == ScaleType::kNested || type == ScaleType::kPairs ? outer : inner;
  const uint32_t small = *inner;
  return scale_of(type, *reinterpret_cast<const uint16_t*>(at),
                  type == ScaleType::kPairs ? small >> shift : small);
}

// Dequantizes inputs first .. first + 3 of a block (`first` a multiple of 4) for an output, as dequantized().
// table: c.table, or a copy.
__device__ __forceinline__ void dequantize4(const Codes& c, const float* table, const unsigned char* block,
                                            int output, int first, float (&out)[4]) {
  const unsigned char* outer = block + output * 2;
  const unsigned char* inner =
      block + c.outer_bytes + ((first >> c.size_bits) * kCodeRows + output) * c.scale_width;
  const float scale = stored_scale(c.scales, inner, outer, 0);
  const float minimum =
      c.minimum ? stored_scale(c.scales, inner + c.inner_bytes, outer + 2 * kCodeRows, 4) : 0.0F;
  const int quad = first % kCodeGroup / 4;
  const unsigned char* at = block + c.scale_bytes + first / kCodeGroup * c.group_bytes + output * 4;
  uint32_t word = 0;
#pragma unroll
  for (const Plane& plane : c.planes) {
    if (plane.mask == 0) continue;
    word |= plane.values(*reinterpret_cast<const uint32_t*>(at + plane.line(quad)), quad);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t q = word >> (8 * i) & 0xffU;
    const float value = c.width == CodeWidth::kNibbles ? table[q]
                        : c.code == Code::kE4M3        ? e4m3(q)
                                                       : static_cast<float>(static_cast<int>(q) - c.zero);
    out[i] = fmaf(scale, value, minimum);
  }
}

}  // namespace lariat::cuda
