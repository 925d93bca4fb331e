#pragma once
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/convert.h"
#include "kernels/host_weight.h"
#include "kernels/quant.h"
#include "tests/kernels/tensors.h"

// Random quantized weights of every published format.
namespace lariat::test {

struct FormatCase {
  const char* name;
  WeightFormat format;
};
inline void PrintTo(const FormatCase& c, std::ostream* out) { *out << c.name; }

inline std::vector<FormatCase> format_cases() {
  using enum ScaleType;
  constexpr DType q8 = DType::kQ8, q4 = DType::kQ4;
  constexpr Code linear = Code::kLinear;
  return {{"q8", q8},
          {"q4", q4},
          {"Q8_0", {q8, {linear, kF16}}},
          {"Q4_0", {q4, {linear, kF16}}},
          {"Q4_1", {q4, {linear, kF16, true}}},
          {"Q5_0", {q8, {linear, kF16, false, 32, 64, 5}}},
          {"Q5_1", {q8, {linear, kF16, true, 32, 64, 5}}},
          {"Q4_K", {q4, {linear, kNested, true, 32, 256}}},
          {"Q5_K", {q8, {linear, kNested, true, 32, 256, 5}}},
          {"Q6_K", {q8, {linear, kNested, false, 16, 256, 6}}},
          {"Q2_K", {q4, {linear, kPairs, true, 16, 256, 2}}},
          {"Q3_K192", {q4, {linear, kNested, false, 16, 192, 3}}},
          {"Q2Plain", {q4, {linear, kF16, false, 64, 64, 2}}},
          {"Q3Minimum", {q4, {linear, kBF16, true, 32, 64, 3}}},
          {"Q5Halves", {q8, {linear, kF32, false, 16, 64, 5}}},
          {"Q6Minimum", {q8, {linear, kNested, true, 64, 192, 6}}},
          {"Wide6", {q8, {linear, kNested, false, 16, 256, 0, true}}},
          {"Wide4", {q4, {linear, kNested, true, 16, 256}}},
          {"Q6_K448", {q8, {linear, kNested, true, 16, 448}}},
          {"IQ4_NL", {q4, {Code::kIq4, kF16}}},
          {"IQ4_XS", {q4, {Code::kIq4, kNested, false, 32, 256}}},
          {"Iq4Halves", {q4, {Code::kIq4, kF32, true, 16}}},
          {"MXFP4", {q4, {Code::kE2M1, kBF16}}},
          {"NVFP4", {q4, {Code::kE2M1, kF32, false, 16}}},
          {"MLX4", {q4, {linear, kBF16, true, 64}}},
          {"MLX8", {q8, {linear, kBF16, true, 64}}},
          {"AWQ", {q4, {linear, kF32, true, 128, 128}}},
          {"Int8", {q8, {linear, kF32, false, 128, 128}}},
          {"FP8", {q8, {Code::kE4M3, kF32, false, 128, 128}}},
          {"FP8Halves", {q8, {Code::kE4M3, kF32, true, 16}}},
          {"NF4", {q4, {Code::kNf4, kF32, false, 64}}},
          {"FP4", {q4, {Code::kFp4, kF32, true, 64}}},
          {"Pairs64", {q4, {linear, kPairs, true, 64, 192, 3}}},
          {"Q2Nested", {q4, {linear, kNested, false, 32, 256, 2}}}};
}

// A row depends on its number only; weights lie in [-3, 3]. ends: only the smallest and largest quantized
// values.
inline HostWeight random_codes(const WeightFormat& format, int64_t rows, int64_t cols, uint64_t seed = 1,
                               bool ends = false) {
  return {format, rows, cols, [=](int64_t row, const CodeRow& to) {
            const QuantLayout layout(format, rows, cols);
            const bool narrow = format.grouping.narrow, minimum = format.grouping.minimum;
            const int codes = narrow ? (minimum ? 33 : 65) : 1 << layout.bits();
            const int first = narrow && !minimum ? 128 - 32 : 0;
            float largest = 0;
            for (int q = 0; q < codes; ++q) {
              const float value = code_value(format, static_cast<uint8_t>(first + q));
              if (!std::isnan(value)) largest = std::max(largest, std::abs(value));
            }
            Rng rng(seed * 100003 + static_cast<uint64_t>(row));
            for (int64_t c = 0; c < cols; ++c) {
              to.codes[c] = static_cast<uint8_t>(rng.next() % static_cast<uint64_t>(codes));
              // Few normal floats are subnormal.
              if (format.grouping.code == Code::kE4M3 && rng.next() % 256 != 0)
                to.codes[c] = static_cast<uint8_t>(to.codes[c] | 0x40);
              if (ends) to.codes[c] = row / 16 % 2 == 0 ? 0 : static_cast<uint8_t>(codes - 1);
              to.codes[c] = static_cast<uint8_t>(to.codes[c] + first);
              if (std::isnan(code_value(format, to.codes[c]))) to.codes[c] = 0x7e;
            }
            const auto number = [&](float most) {
              const double value = most * (1.5 - rng.uniform()) * (rng.next() % 4 == 0 ? -1 : 1);
              if (format.grouping.scales == ScaleType::kF32) return static_cast<float>(value);
              const auto rounded = static_cast<float>(value);
              return format.grouping.scales == ScaleType::kBF16 ? round_to_bf16(rounded)
                                                                : round_to_f16(rounded);
            };
            const auto small = [&] {
              return layout.pairs() ? static_cast<float>(rng.next() % 16)
                                    : static_cast<float>(static_cast<int>(rng.next() % 128) - 64);
            };
            for (int64_t g = 0; g < layout.scales(); ++g) {
              to.scales[g] = layout.nested() ? small() : number(1 / largest);
              if (format.grouping.minimum) to.minima[g] = layout.nested() ? small() : number(1);
            }
            for (int64_t b = 0; layout.nested() && b < layout.blocks(); ++b) {
              to.outer[b] = number(1 / (64 * largest));
              if (format.grouping.minimum) to.outer_minima[b] = number(1.0F / 64);
            }
          }};
}

inline Loaded load_codes(Backend& backend, const HostWeight& from) {
  const WeightFormat format = from.m.format();
  LoadedWeight loaded = backend.load_weight({&from, 1}, {&format, 1}, DType::kF32);
  return {loaded.weight.blocks[0].w, std::move(loaded.memory)};
}

inline std::vector<uint8_t> bytes_of(const Matrix& m) {
  const auto* data = static_cast<const uint8_t*>(m.data);
  return {data, data + stored_bytes(m)};
}

// LinearProblem::tolerance with weights of at most 3.
inline double sum_tolerance(const float* x, int64_t count) {
  double magnitude = 0;
  for (int64_t i = 0; i < count; ++i) magnitude += 3 * std::abs(static_cast<double>(x[i]));
  return 8 * 0x1p-24 * magnitude;
}

// The same for activations of 16 bits, which differ from x by up to half a step, 1/(127 * 254) of a group's
// largest value: six standard deviations of a sum. Activations of 8 bits err by 254 times as much.
inline double wide_tolerance(const float* x, int64_t count) {
  float peak = 0;
  for (int64_t i = 0; i < count; ++i) peak = std::max(peak, std::abs(x[i]));
  const double deviation = peak / (127.0 * 254.0 * std::sqrt(12.0));
  return sum_tolerance(x, count) + 6 * 3 * deviation * std::sqrt(static_cast<double>(count));
}

}  // namespace lariat::test
