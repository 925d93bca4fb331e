#pragma once
#include <cstdint>

namespace lariat {

// Meaning of quantized values; kernels/quant.h has the tables.
enum class Code : uint8_t {
  kLinear,  // integer minus a zero point; the zero point is 0 with a minimum
  kE2M1,    // MXFP4, 4 bits
  kIq4,     // IQ4_NL, 4 bits
  kE4M3,    // FP8 E4M3
  kNf4,     // NF4: quantiles of a normal distribution (QLoRA, arXiv 2305.14314)
  kFp4,     // FP4 of bitsandbytes
};

// Whether dot products are integer, with quantized inputs.
constexpr bool is_integer(Code code) { return code <= Code::kIq4; }

// Storage type of scales and minima. kNested: small integers times an f16 per output and block (K-quants of
// llama.cpp). kPairs: the same, with the integers of a scale and its minimum, 0 to 15, in one byte (Q2_K).
enum class ScaleType : uint8_t { kBF16, kF16, kF32, kNested, kPairs };

constexpr bool is_nested(ScaleType type) { return type >= ScaleType::kNested; }

// Grouping::bits of values of `bits` bits: 0 if the DType says the width (8, 4).
constexpr uint8_t bits_field(int bits) { return static_cast<uint8_t>(bits == 8 || bits == 4 ? 0 : bits); }

// Group-wise quantization of a matrix.
struct Grouping {
  Code code = Code::kLinear;
  ScaleType scales = ScaleType::kBF16;
  bool minimum = false;  // value = scale * code + minimum, with unsigned codes
  uint8_t size = 32;     // consecutive inputs of an output with one scale: 16, 32, 64 or 128
  uint16_t block = 64;   // inputs per block (QuantLayout), a multiple of 64 and of `size`
  uint8_t bits = 0;      // 2, 3, 5 or 6: bits per value, in planes (QuantLayout); 0: 8 or 4, the DType's
  bool narrow = false;   // 8-bit values within 32 of the zero point

  bool operator==(const Grouping&) const = default;
  // A format of quantize() (kernels/quant.h).
  bool plain() const { return *this == Grouping{}; }
  // Inputs whose scales are stored together: a row can be cut at their multiples.
  int64_t unit() const { return is_nested(scales) ? block : size; }
};

}  // namespace lariat
