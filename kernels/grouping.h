#pragma once
#include <cstdint>

namespace lariat {

// What the codes of a quantised matrix stand for; kernels/quant.h has the tables.
enum class Code : uint8_t {
  kLinear,  // the integer itself, less a zero where there is no minimum
  kE2M1,    // 4 bits of MXFP4
  kIq4,     // 4 bits of IQ4_NL
  kE4M3,    // an 8-bit float
  kNf4,     // 4 bits of a normal distribution's quantiles (QLoRA, arXiv 2305.14314)
  kFp4,     // 4-bit floats as bitsandbytes has them
};

// Whether products of such codes are made of integers; else each is a float, as is what it is multiplied by.
constexpr bool is_integer(Code code) { return code <= Code::kIq4; }

// What the scales and minima of a quantised matrix are stored as. kNested: small integers times an f16 that
// all scales, or all minima, of an output's block share (llama.cpp's K-quants).
enum class ScaleType : uint8_t { kBF16, kF16, kF32, kNested };

// What turns the codes of a quantised matrix into numbers, as a DType says how many bits a code has.
struct Grouping {
  Code code = Code::kLinear;
  ScaleType scales = ScaleType::kBF16;
  bool minimum = false;  // value = scale * code + minimum, of unsigned codes
  uint8_t size = 32;     // consecutive inputs of an output that share a scale: 16, 32, 64 or 128
  uint16_t block = 64;   // inputs in a block of a tile (QuantLayout), a multiple of 64 and of `size`
  bool narrow = false;   // 8-bit codes that have at most 6: within 32 of their zero

  bool operator==(const Grouping&) const = default;
  // That of the two forms that quantize() makes (kernels/quant.h), of 8 and of 4 bits.
  bool plain() const { return *this == Grouping{}; }
};

}  // namespace lariat
