#include "kernels/search_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/integers.h"

namespace lariat {
namespace {

// Sums use four lanes in a fixed order, whatever the processor.
using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));
constexpr int64_t kFours = kSearchGroup / 4;

constexpr float kSteps[] = {-1.0F, -0.4F, 0.2F, 0.6F, 1.0F,
                            1.4F,  1.8F,  2.2F, 2.8F};  // added to the largest code
constexpr int kNear = 3;                                // search radius of S
constexpr float kSmallest = 0x1p-100F, kReach = 8e6F;   // limits of a group's range

// A group's values minus the middle of their range, for accurate differences.
struct Group {
  Four x[kFours];
  float middle, range;  // range: NaN or infinite if a value is
  float sum, squares;   // of x
};

// x ~ scale * code + minimum
struct Line {
  float scale = 0, minimum = 0, error = 0;
};

struct Sums {
  float code = 0, squares = 0, product = 0;
};

float total(Four v) { return (v[0] + v[2]) + (v[1] + v[3]); }

Group load_group(const float* w, int64_t count) {
  Group group{};
  bool finite = true;
  float low = w[0], high = w[0];
  for (int64_t i = 0; i < kSearchGroup; ++i) {  // repeats a partial group
    const float value = w[i < count ? i : i % count];
    group.x[i / 4][i % 4] = value;
    low = std::min(low, value);
    high = std::max(high, value);
    finite = finite && std::isfinite(value);
  }
  group.range = finite ? high - low : std::numeric_limits<float>::quiet_NaN();
  group.middle = low / 2 + high / 2;
  Four sum{}, squares{};
  for (Four& x : group.x) {
    x -= group.middle;
    sum += x;
    squares += x * x;
  }
  group.sum = total(sum);
  group.squares = total(squares);
  return group;
}

// (x - minimum) / scale, rounded and clamped to [0, largest].
FourInts codes_of(Four x, float minimum, float inverse, float largest) {
  const Four zero{}, most = zero + (largest + 0.5F), place = (x - minimum) * inverse + 0.5F;
  const Four above = place > zero ? place : zero;
  return __builtin_convertvector(above < most ? above : most, FourInts);
}

Sums code_sums(const Group& group, float minimum, float inverse, float largest) {
  Four code{}, squares{}, product{};
  for (const Four& x : group.x) {
    const Four c = __builtin_convertvector(codes_of(x, minimum, inverse, largest), Four);
    code += c;
    squares += c * c;
    product += c * x;
  }
  return {total(code), total(squares), total(product)};
}

// The sum of (scale * code + minimum - x)^2
float error_of(const Group& group, const Sums& s, float scale, float minimum) {
  return group.squares + scale * (scale * s.squares - 2 * s.product) +
         minimum * (2 * scale * s.code - 2 * group.sum + static_cast<float>(kSearchGroup) * minimum);
}

Line fit_floats(const Group& group, float largest) {
  constexpr float kCount = kSearchGroup;
  Line best;
  if (!(group.range > kSmallest)) return best;
  best.error = std::numeric_limits<float>::infinity();
  for (const float step : kSteps) {
    const float inverse = (largest + step) / group.range;
    const Sums s = code_sums(group, -largest / (2 * inverse), inverse, largest);
    const float spread = kCount * s.squares - s.code * s.code;
    if (!(spread > 0)) continue;
    const float scale = (kCount * s.product - group.sum * s.code) / spread;
    const float minimum = (group.sum - scale * s.code) / kCount;
    const float error = error_of(group, s, scale, minimum);
    if (error < best.error && scale > 0) best = {scale, minimum, error};
  }
  return best;
}

// Best S and M, as the scale and minimum of a line in units of d and dm.
Line fit_integers(const Group& group, const Line& line, float d, float dm, float largest) {
  constexpr float kCount = kSearchGroup, kEnd = kLargestScale;
  const auto offset_at = [&](float minimum) {
    return dm > 0 ? std::clamp(std::nearbyint((minimum + group.middle) / dm), -kEnd, kEnd) : 0.0F;
  };
  Line best{0, offset_at(group.sum / kCount), 0};
  best.error = error_of(group, {}, 0, best.minimum * dm - group.middle);
  if (!(d > 0) || !(line.scale > 0)) return best;
  const float asked = std::nearbyint(line.scale / d);
  for (float s = std::max(asked - kNear, 1.0F); s <= std::min(asked + kNear, kEnd); ++s) {
    const float scale = d * s, inverse = 1 / scale;
    float minimum = line.minimum + largest / 2 * (line.scale - scale);  // keeps the middle approximately
    for (int turn = 0; turn < 2; ++turn) {
      const float offset = offset_at(minimum), rounded = offset * dm - group.middle;
      const Sums sums = code_sums(group, rounded, inverse, largest);
      const float error = error_of(group, sums, scale, rounded);
      if (error < best.error) best = {s, offset, error};
      minimum = (group.sum - scale * sums.code) / kCount;
    }
  }
  return best;
}

// Smallest f16 at or above a positive value: S and M never exceed kLargestScale.
float f16_above(float value) {
  const uint16_t bits = f32_to_f16(value);
  return f16_to_f32(static_cast<uint16_t>(f16_to_f32(bits) < value ? bits + 1 : bits));
}

void search_block_of(const float* w, int64_t cols, float largest, int64_t group0, int64_t block,
                     const SearchedRow& out) {
  std::array<Group, kSearchBlock / kSearchGroup> groups;
  std::array<Line, kSearchBlock / kSearchGroup> lines;
  const auto count = static_cast<size_t>(ceil_div(cols, kSearchGroup));
  float scale = 0, minimum = 0;
  bool good = true;
  for (size_t g = 0; g < count; ++g) {
    const auto first = static_cast<int64_t>(g) * kSearchGroup;
    groups[g] = load_group(w + first, std::min(kSearchGroup, cols - first));
    lines[g] = fit_floats(groups[g], largest);
    scale = std::max(scale, lines[g].scale);
    minimum = std::max(minimum, std::abs(lines[g].minimum + groups[g].middle));
    good = good && groups[g].range + std::abs(groups[g].middle) < kReach;  // false for NaN
  }
  float d = f16_above(scale / kLargestScale), dm = f16_above(minimum / kLargestScale);
  if (!good) d = dm = std::numeric_limits<float>::quiet_NaN();
  out.d[block] = d;
  out.dm[block] = dm;
  for (size_t g = 0; g < count; ++g) {
    const auto at = group0 + static_cast<int64_t>(g);
    const Line best = std::isnan(d) ? Line{} : fit_integers(groups[g], lines[g], d, dm, largest);
    out.scale[at] = best.scale;
    out.offset[at] = best.minimum;
    const float base = best.minimum * dm - groups[g].middle;
    const float inverse = best.scale > 0 ? 1 / (d * best.scale) : 0;
    uint8_t* codes = out.codes + at * kSearchGroup;
    for (size_t i = 0; i < kSearchGroup; ++i) {
      const bool absent = static_cast<int64_t>(g) * kSearchGroup + static_cast<int64_t>(i) >= cols;
      const bool none = absent || !(best.scale > 0);
      codes[i] = none ? uint8_t{0}
                      : static_cast<uint8_t>(codes_of(groups[g].x[i / 4], base, inverse, largest)[i % 4]);
    }
  }
}

}  // namespace

int64_t search_block(int64_t cols) {
  constexpr int64_t kUnit = 64;
  const int64_t fewest = ceil_div(std::max<int64_t>(cols, 1), kSearchBlock);
  int64_t best = 0, least = std::numeric_limits<int64_t>::max();
  for (int64_t parts = fewest; parts <= 2 * fewest; ++parts) {
    const int64_t block = round_up(ceil_div(std::max<int64_t>(cols, 1), parts), kUnit);
    if (block * parts < least) {
      least = block * parts;
      best = block;
    }
  }
  return best;
}

void search_row(const float* w, int64_t cols, int64_t block, int largest, const SearchedRow& out) {
  for (int64_t first = 0; first < cols; first += block) {
    const int64_t group = first / kSearchGroup, count = std::min(block, cols - first);
    search_block_of(w + first, count, static_cast<float>(largest), group, first / block, out);
  }
}

WeightFormat searched_format(DType dtype, int64_t cols) {
  Grouping grouping{.scales = ScaleType::kNested, .minimum = true, .size = kSearchGroup};
  grouping.block = static_cast<uint16_t>(search_block(cols));
  return {dtype, grouping};
}

HostWeight searched(const Matrix& floats, const WeightFormat& format) {
  const auto read = [floats, format](int64_t row, const CodeRow& to) {
    std::vector<float> w(static_cast<size_t>(floats.cols));
    convert(floats.row_range(row, 1), {w.data(), DType::kF32, 1, floats.cols});
    std::vector<uint8_t> codes(static_cast<size_t>(round_up(floats.cols, kSearchGroup)));
    search_row(w.data(), floats.cols, format.grouping.block, format.dtype == DType::kQ4 ? 15 : 255,
               {codes.data(), to.scales, to.minima, to.outer, to.outer_minima});
    std::copy_n(codes.begin(), w.size(), to.codes);
  };
  return {format, floats.rows, floats.cols, read};
}

}  // namespace lariat
