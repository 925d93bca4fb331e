#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/load/weight_source.h"

namespace lariat {
namespace {

// splitmix64 (public domain, Vigna): fast enough to fill gigabytes, and identical on every platform. Its
// state is a counter, so that threads can compute any row alone: returns number `ahead` (from 1) after
// `state`.
uint64_t random_after(uint64_t state, uint64_t ahead) {
  uint64_t z = state + ahead * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Random sign and mantissa, one of four equally likely exponents; values are below 2^-exponent. Values are
// composed from bits, so that every dtype is filled at memory speed. Value i uses random number first + i + 1
// after `state`.
void fill_random(uint8_t* out, int64_t count, DType dtype, int exponent, uint64_t state, uint64_t first) {
  const int bias = dtype == DType::kF16 ? 15 : 127;
  const int mantissa_bits = dtype == DType::kF32 ? 23 : dtype == DType::kBF16 ? 7 : 10;
  const int sign_bit = dtype == DType::kF32 ? 31 : 15;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const uint64_t random = random_after(state, first + i + 1);
    const uint32_t mantissa = static_cast<uint32_t>(random) & ((1U << mantissa_bits) - 1);
    const uint32_t biased =
        static_cast<uint32_t>(std::max(1, bias - exponent - static_cast<int>(random >> 62)));
    const uint32_t bits =
        (static_cast<uint32_t>(random >> 40) & 1U) << sign_bit | biased << mantissa_bits | mantissa;
    if (dtype == DType::kF32) {
      std::memcpy(out + i * 4, &bits, 4);
    } else {
      const auto half = static_cast<uint16_t>(bits);
      std::memcpy(out + i * 2, &half, 2);
    }
  }
}

// Values depend on name and row only.
class RandomWeights : public WeightLoader {
 public:
  RandomWeights(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed)
      : WeightLoader(spec, backend, requested), spec_(spec), requested_(requested), seed_(seed) {}

 private:
  // Quantised weights start from the checkpoint's dtype.
  HostWeight host(const Parameter& parameter, bool /*once*/) override {
    const DType stored = stored_format(parameter, requested_, spec_.dtype).dtype,
                drawn = is_quantized(stored) ? spec_.dtype : stored;
    const int exponent =
        is_vector(parameter.role)
            ? 0
            : static_cast<int>(std::lround(std::log2(std::sqrt(static_cast<double>(parameter.cols)))));
    uint64_t state = seed_ + static_cast<uint64_t>(parameter.part.first);
    for (const char c : parameter.name) state = random_after(state, 1) ^ static_cast<uint64_t>(c);
    const auto read = [=, cols = parameter.cols](int64_t row, const CodeRow& to) {
      fill_random(to.codes, cols, drawn, exponent, state, static_cast<uint64_t>(row * cols));
    };
    return {drawn, parameter.rows, parameter.cols, read};
  }

  const ModelSpec& spec_;
  WeightFormat requested_;
  uint64_t seed_;
};

}  // namespace

Weights random_weights(const ModelSpec& spec, Backend& backend, const WeightFormat& requested, uint64_t seed,
                       const Split& split) {
  RandomWeights source(spec, backend, requested, seed);
  return source.finish(read_weights(spec, nullptr, source, requested, split));
}

}  // namespace lariat
