#include "models/quantization/gguf_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "models/quantization/quantized.h"

// Blocks of ggml/src/ggml-common.h, decoded as in ggml/src/ggml-quants.c (dequantize_row_*). Numbers are
// little-endian and unaligned.
namespace lariat {
namespace {

constexpr GgufType kTypes[] = {
    {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},      {"Q4_1", 3, 32, 20},
    {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},      {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 36},
    {"Q2_K", 10, 256, 84},    {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
    {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74},
    {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},   {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110},
    {"IQ2_S", 22, 256, 82},   {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
    {"I32", 26, 1, 4},        {"I64", 27, 1, 8},        {"F64", 28, 1, 8},        {"IQ1_M", 29, 256, 56},
    {"BF16", 30, 1, 2},       {"TQ1_0", 34, 256, 54},   {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},
    {"NVFP4", 40, 64, 36},    {"Q1_0", 41, 128, 18}};

// Unpacks one block of a row. Loops copy to.codes: written bytes may alias anything, `to` too.
using Unpack = void (*)(const uint8_t* from, const CodeRow& to);

template <class T>
T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float half(const uint8_t* from) { return f16_to_f32(read<uint16_t>(from)); }

// 16 bytes of two 4-bit values: the low halves are the first 16 values.
void split_halves(const uint8_t* from, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = from[i] & 15;
    codes[i + 16] = static_cast<uint8_t>(from[i] >> 4);
  }
}

// Spreads the bits of each byte to eight bytes; a set bit becomes 16.
constexpr auto kFifthBits = [] {
  std::array<uint64_t, 256> spread{};
  for (size_t bits = 0; bits < 256; ++bits)
    for (size_t i = 0; i < 8; ++i) spread[bits] |= (bits >> i & 1) << (8 * i + 4);
  return spread;
}();

// Adds bit i of `high` to value i as bit 4.
void add_fifth_bit(uint32_t high, uint8_t* codes) {
  for (int i = 0; i < 32; i += 8, codes += 8, high >>= 8) {
    const uint64_t sum = read<uint64_t>(codes) | kFifthBits[high & 255];
    std::memcpy(codes, &sum, sizeof sum);
  }
}

void q8_0(const uint8_t* from, const CodeRow& to) {
  to.scales[0] = half(from);
  uint8_t* const codes = to.codes;
  for (int i = 0; i < 32; ++i) codes[i] = from[2 + i] ^ 0x80;  // + 128
}

void q4_0(const uint8_t* from, const CodeRow& to) {  // IQ4_NL too
  to.scales[0] = half(from);
  split_halves(from + 2, to.codes);
}

void q4_1(const uint8_t* from, const CodeRow& to) {
  to.scales[0] = half(from);
  to.minima[0] = half(from + 2);
  split_halves(from + 4, to.codes);
}

void q5_0(const uint8_t* from, const CodeRow& to) {
  to.scales[0] = half(from);
  split_halves(from + 6, to.codes);
  add_fifth_bit(read<uint32_t>(from + 2), to.codes);
}

void q5_1(const uint8_t* from, const CodeRow& to) {
  to.scales[0] = half(from);
  to.minima[0] = half(from + 2);
  split_halves(from + 8, to.codes);
  add_fifth_bit(read<uint32_t>(from + 4), to.codes);
}

// The scale is a power of two in 8 bits, for half of the table's values.
void mxfp4(const uint8_t* from, const CodeRow& to) {
  to.scales[0] = e8m0_to_f32(from[0]) / 2;
  split_halves(from + 1, to.codes);
}

// 64 bytes of four 2-bit values: of 128 values, 32 for each bit pair.
void two_bits(const uint8_t* from, uint8_t* codes) {
  for (int half_block = 0; half_block < 2; ++half_block, from += 32) {
    for (int shift = 0; shift < 8; shift += 2, codes += 32)
      for (int i = 0; i < 32; ++i) codes[i] = from[i] >> shift & 3;
  }
}

void q2_k(const uint8_t* from, const CodeRow& to) {
  for (int g = 0; g < 16; ++g) {
    to.scales[g] = static_cast<float>(from[g] & 15);
    to.minima[g] = static_cast<float>(from[g] >> 4);
  }
  two_bits(from + 16, to.codes);
  *to.outer = half(from + 80);
  *to.outer_minima = -half(from + 82);
}

void q3_k(const uint8_t* from, const CodeRow& to) {
  const uint8_t* const scales = from + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = scales[g % 8] >> (g / 8 * 4) & 15, high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
    to.scales[g] = static_cast<float>((low | high << 4) - 32);
  }
  two_bits(from + 32, to.codes);
  uint8_t* codes = to.codes;
  for (int bit = 0; bit < 8; ++bit, codes += 32) {  // a clear bit subtracts 4
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (from[i] >> bit & 1) << 2);
  }
  *to.outer = half(from + 108);
}

// Start of Q4_K and Q5_K: f16 factors of scales and minima, and 8 of each in 6 bits.
void six_bit_scales(const uint8_t* from, const CodeRow& to) {
  *to.outer = half(from);
  *to.outer_minima = half(from + 2);
  from += 4;
  for (int g = 0; g < 4; ++g) {
    to.scales[g] = static_cast<float>(from[g] & 63);
    to.minima[g] = static_cast<float>(-(from[g + 4] & 63));
    to.scales[g + 4] = static_cast<float>((from[g + 8] & 15) | from[g] >> 6 << 4);
    to.minima[g + 4] = static_cast<float>(-(from[g + 8] >> 4 | from[g + 4] >> 6 << 4));
  }
}

// 128 bytes of two 4-bit values: of 64 values, the low halves are the first 32.
void nibbles(const uint8_t* from, uint8_t* codes) {
  for (int c = 0; c < 4; ++c, from += 32, codes += 64) {
    for (int i = 0; i < 32; ++i) {
      codes[i] = from[i] & 15;
      codes[i + 32] = static_cast<uint8_t>(from[i] >> 4);
    }
  }
}

void q4_k(const uint8_t* from, const CodeRow& to) {
  six_bit_scales(from, to);
  nibbles(from + 16, to.codes);
}

void q5_k(const uint8_t* from, const CodeRow& to) {
  six_bit_scales(from, to);
  nibbles(from + 48, to.codes);
  const uint8_t* const high = from + 16;
  uint8_t* codes = to.codes;
  for (int bit = 0; bit < 8; ++bit, codes += 32) {
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (high[i] >> bit & 1) << 4);
  }
}

void q6_k(const uint8_t* from, const CodeRow& to) {
  *to.outer = half(from + 208);
  for (int g = 0; g < 16; ++g) to.scales[g] = static_cast<float>(static_cast<int8_t>(from[192 + g]));
  uint8_t* codes = to.codes;
  for (int part = 0; part < 8; ++part, codes += 32) {
    const uint8_t *low = from + part / 4 * 64 + part % 2 * 32, *high = from + 128 + part / 4 * 32;
    const int low_shift = part % 4 / 2 * 4, high_shift = part % 4 * 2;
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
    }
  }
}

void iq4_xs(const uint8_t* from, const CodeRow& to) {
  *to.outer = half(from);
  const auto high = read<uint16_t>(from + 2);
  for (int g = 0; g < 8; ++g) {
    const int scale = (from[4 + g / 2] >> (g % 2 * 4) & 15) | (high >> (g * 2) & 3) << 4;
    to.scales[g] = static_cast<float>(scale - 32);
    split_halves(from + 8 + g * 16, to.codes + g * 32);
  }
}

struct Blocks {
  std::string_view type;
  int bits;
  Code code;
  ScaleType scales;
  bool minimum;
  uint8_t size;
  Unpack unpack;

  WeightFormat format() const {
    const uint16_t block = is_nested(scales) ? 256 : 64;
    return {bits > 4 ? DType::kQ8 : DType::kQ4, {code, scales, minimum, size, block, bits_field(bits)}};
  }
};

constexpr Blocks kBlocks[] = {{"Q8_0", 8, Code::kLinear, ScaleType::kF16, false, 32, q8_0},
                              {"Q4_0", 4, Code::kLinear, ScaleType::kF16, false, 32, q4_0},
                              {"Q4_1", 4, Code::kLinear, ScaleType::kF16, true, 32, q4_1},
                              {"Q5_0", 5, Code::kLinear, ScaleType::kF16, false, 32, q5_0},
                              {"Q5_1", 5, Code::kLinear, ScaleType::kF16, true, 32, q5_1},
                              {"Q2_K", 2, Code::kLinear, ScaleType::kPairs, true, 16, q2_k},
                              {"Q3_K", 3, Code::kLinear, ScaleType::kNested, false, 16, q3_k},
                              {"Q4_K", 4, Code::kLinear, ScaleType::kNested, true, 32, q4_k},
                              {"Q5_K", 5, Code::kLinear, ScaleType::kNested, true, 32, q5_k},
                              {"Q6_K", 6, Code::kLinear, ScaleType::kNested, false, 16, q6_k},
                              {"IQ4_NL", 4, Code::kIq4, ScaleType::kF16, false, 32, q4_0},
                              {"IQ4_XS", 4, Code::kIq4, ScaleType::kNested, false, 32, iq4_xs},
                              {"MXFP4", 4, Code::kE2M1, ScaleType::kBF16, false, 32, mxfp4}};

}  // namespace

std::span<const GgufType> gguf_types() { return kTypes; }

const GgufType* find_gguf_type(uint32_t id) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [=](const auto& t) { return t.id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

const GgufType* find_gguf_type(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [=](const auto& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::shared_ptr<const HostWeight> gguf_codes(const StoredTensor& tensor) {
  if (tensor.dtype == "F32" || tensor.dtype == "F16" || tensor.dtype == "BF16") return nullptr;
  const auto* blocks = std::find_if(std::begin(kBlocks), std::end(kBlocks),
                                    [&](const Blocks& b) { return b.type == tensor.dtype; });
  const std::string where = fmt::format("{}: tensor '{:.200}'", tensor.file.string(), tensor.name);
  if (blocks == std::end(kBlocks)) {
    std::string known;
    for (const Blocks& b : kBlocks) known += fmt::format("{}, ", b.type);
    throw Error(fmt::format("{} is {}; use {}F32, F16 or BF16", where, tensor.dtype, known));
  }
  const GgufType& type = *find_gguf_type(tensor.dtype);
  const int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  if (cols % type.elements != 0) {
    throw Error(fmt::format(
        "{} has rows of {}, but {} needs a multiple of {}; the file is damaged, download it again", where,
        cols, type.name, type.elements));
  }
  const WeightFormat format = blocks->format();
  const int64_t groups = type.elements / format.grouping.size;
  const auto read_row = [unpack = blocks->unpack, data = reinterpret_cast<const uint8_t*>(tensor.data),
                         block = type, count = cols / type.elements, groups,
                         minima = format.grouping.minimum ? groups : 0,
                         outer = is_nested(blocks->scales) ? 1 : 0](int64_t row, CodeRow to) {
    const uint8_t* from = data + row * count * block.bytes;
    for (int64_t b = 0; b < count; ++b, from += block.bytes) {
      unpack(from, to);
      to.codes += block.elements;
      to.scales += groups;
      to.minima += minima;
      to.outer += outer;
      to.outer_minima += minima > 0 ? outer : 0;
    }
  };
  return std::make_shared<HostWeight>(format, rows, cols, read_row);
}

}  // namespace lariat
