#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/lay_out_rows.h"
#include "kernels/cpu/quant_matmul.h"
#include "tests/bits_of_rows.h"
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/grouped_formats.h"

namespace lariat::test {
namespace {

class FormatLayout : public testing::TestWithParam<FormatCase> {
 protected:
  const WeightFormat format_ = GetParam().format;
};

TEST_P(FormatLayout, EveryWeightAndScaleHasItsOwnBits) {
  const QuantLayout layout(format_, 33, format_.grouping.block + 2);
  std::vector<uint8_t> bytes(layout.bytes());
  const auto take = [&](int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(std::exchange(bytes.at(static_cast<size_t>(at + i)), uint8_t{0xff}), 0);
  };
  for (int64_t r = 0; r < layout.tiles() * kQuantRows; ++r) {
    for (int64_t c = 0; c < layout.groups() * kQuantGroup; ++c) {
      const int most = (1 << layout.bits()) - 1;
      ASSERT_EQ(layout.value(bytes.data(), r, c), 0);
      layout.put(most, r, c, bytes.data());
      ASSERT_EQ(layout.value(bytes.data(), r, c), most);
      for (int64_t kind = 0; kind < (format_.grouping.minimum ? 2 : 1); ++kind) {
        if (c % layout.size() == 0 && (kind == 0 || !layout.pairs())) {
          take(layout.scale_at(r, c) + kind * layout.inner_bytes(), layout.scale_width());
        }
        if (layout.nested() && c % layout.block() == 0) {
          take(layout.outer_at(r, c) + kind * 2 * kQuantRows, 2);
        }
      }
    }
  }
  const auto full = std::count(bytes.begin(), bytes.end(), 0xff),
             unused = std::count(bytes.begin(), bytes.end(), 0);
  EXPECT_EQ(full + unused, static_cast<int64_t>(bytes.size()));
  EXPECT_LT(unused, 64 * layout.tiles() * layout.blocks());  // scale padding
}

TEST_P(FormatLayout, HoldsTheOriginalValues) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {35, 2 * format_.grouping.block + 37}}) {
    const HostWeight codes = random_codes(format_, rows, cols);
    const Loaded laid_out = load_codes(cpu, codes), plain = load_codes(reference, codes);
    EXPECT_EQ(bytes_of(laid_out.matrix), bytes_of(plain.matrix));
    const Tensor floats(cpu, rows, cols, 3);
    cpu::lay_out_rows(codes, 0, floats.view(), 2);
    std::vector<float> dequantised;
    for (int64_t i = 0; i < rows * cols; ++i) {
      dequantised.push_back(dequantized(plain.matrix, i / cols, i % cols));
    }
    EXPECT_EQ(floats.values(), dequantised);

    std::vector<int32_t> tokens;
    for (int64_t r = rows - 1; r >= 0; --r) tokens.push_back(static_cast<int32_t>(r));
    const Tensor embedded(cpu, rows, cols, 5), expected(cpu, rows, cols);
    cpu.embed(tokens, laid_out.matrix, 1.0F, embedded.view());
    reference.embed(tokens, plain.matrix, 1.0F, expected.view());
    expect_close(embedded.values(), expected.values(), 6 * 0x1p-24, 0, "embed");  // without FMA
    for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&reference)}) {
      const Tensor made(cpu, rows, cols, 7);
      backend->embed(tokens, codes, 1.0F, made.view());
      EXPECT_EQ(made.values(), expected.values()) << backend->name();
    }
  }
}

TEST_P(FormatLayout, PartsOfRowsAndColumns) {
  const int64_t rows = 19, unit = format_.grouping.unit(), cols = 3 * unit + 5;
  const HostWeight codes = random_codes(format_, rows, cols);
  std::vector<float> all(static_cast<size_t>(rows * cols));
  read_floats(codes, 0, {all.data(), DType::kF32, rows, cols});
  const HostWeight floats(Matrix(all.data(), DType::kF32, rows, cols));
  for (const auto& [first, count] :
       {std::pair{unit, 2 * unit}, {2 * unit, unit + 5}, {int64_t{0}, unit}, {int64_t{7}, unit}}) {
    for (const HostWeight& from : {codes, floats}) {
      std::vector<float> part(static_cast<size_t>(7 * count));
      read_floats(columns_of(rows_of(from, 4, 7), first, count), 0, {part.data(), DType::kF32, 7, count});
      for (int64_t i = 0; i < 7 * count; ++i)
        ASSERT_EQ(part[static_cast<size_t>(i)],
                  all[static_cast<size_t>((4 + i / count) * cols + first + i % count)]);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, FormatLayout, testing::ValuesIn(format_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(FormatLayout, ANanWeightBecomesItsGroupsScale) {
  const WeightFormat format{DType::kQ8, {Code::kE4M3, ScaleType::kF32, false, 64}};
  const HostWeight codes(format, 2, 200, [](int64_t row, const CodeRow& to) {
    std::fill(to.codes, to.codes + 200, uint8_t{0x38});
    std::fill(to.scales, to.scales + 4, 1.0F);
    if (row == 1) to.codes[130] = 0xff;
  });
  CpuBackend cpu(1);
  const Loaded w = load_codes(cpu, codes);
  for (int64_t c = 0; c < 200; ++c) {
    EXPECT_EQ(dequantized(w.matrix, 0, c), 1.0F);
    EXPECT_EQ(std::isnan(dequantized(w.matrix, 1, c)), c / 64 == 2) << c;
  }
}

class FormatMatmul : public CpuOp<FormatCase> {
 protected:
  bool integers() const { return is_integer(param().format.grouping.code); }
  int64_t rows_alike_here() const { return linear_rows_alike(integers()); }
  static std::vector<float> product(Backend& backend, const Matrix& w, const float* x, int64_t m,
                                    DType compute = DType::kF32) {
    const Tensor rows(backend, {x, x + m * w.cols}, m, w.cols, DType::kF32, 3);
    const Tensor out(backend, m, w.rows, 2), bias(backend, Rng(9).normals(w.rows), 1, w.rows);
    multiply(backend, rows.view(), w, bias.view(), compute, out.view());
    return out.values();
  }
  // The first `rows` rows of x, each multiplied alone.
  std::vector<float> rows_alone(const Matrix& w, const std::vector<float>& x, int64_t rows) {
    std::vector<float> alone;
    for (int64_t t = 0; t < rows; ++t) {
      const std::vector<float> row = product(cpu_, w, x.data() + t * w.cols, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    return alone;
  }
  std::vector<float> in_bf16(const Matrix& w, const float* x, int64_t m) {
    std::vector<float> values;
    for (int64_t i = 0; i < w.rows * w.cols; ++i) {
      values.push_back(dequantized(w, i / w.cols, i % w.cols));
    }
    const Tensor rounded(reference_, values, w.rows, w.cols, DType::kBF16);
    return product(reference_, rounded.view(), x, m, DType::kBF16);
  }
};

TEST_P(FormatMatmul, MatchesReference) {
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 31}, {17, 100}, {40, 257}, {150, 640}, {33, 1030}}) {
    const Loaded w = load_codes(cpu_, random_codes(param().format, n, k));
    for (const int64_t m : {1, 3, 8, 9, 40}) {
      const std::vector<float> x = Rng(70 + static_cast<uint64_t>(m)).normals(m * k);
      const bool bf16 = m > cpu::kGemvRows && cpu::has_amx_bf16();
      const std::vector<float> expected =
          bf16 ? in_bf16(w.matrix, x.data(), m) : product(reference_, w.matrix, x.data(), m);
      const std::vector<float> actual = product(cpu_, w.matrix, x.data(), m);
      for (int64_t i = 0; i < m * n; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_NEAR(actual[at], expected[at], sum_tolerance(x.data() + i / n * k, k) + 1e-6)
            << "m " << m << " n " << n << " k " << k << " at " << i;
      }
    }
  }
}

// Products of unrounded x, for any number of rows; activations of 8 bits exceed the tolerance.
TEST_P(FormatMatmul, SixteenBitsMatchUnroundedActivations) {
  reference_.use_activations(16);
  for (const auto& shape :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 31}, {17, 100}, {40, 257}, {150, 640}, {33, 1030}}) {
    const int64_t n = shape.first, k = shape.second;
    const Loaded w = load_codes(cpu_, random_codes(param().format, n, k));
    for (const int64_t m : {1, 2, 3, 8, 9, 40}) {
      const std::vector<float> x = Rng(70 + static_cast<uint64_t>(m)).normals(m * k);
      const std::vector<float> expected = product(reference_, w.matrix, x.data(), m);
      const auto worst = [&](int bits) {
        cpu_.use_activations(bits);
        const std::vector<float> actual = product(cpu_, w.matrix, x.data(), m);
        double most = 0;
        for (int64_t i = 0; i < m * n; ++i) {
          const auto at = static_cast<size_t>(i);
          const double error = std::abs(double{actual[at]} - expected[at]);
          most = std::max(most, error / (wide_tolerance(x.data() + i / n * k, k) + 1e-6));
        }
        return most;
      };
      EXPECT_LE(worst(16), 1) << "m " << m << " n " << n << " k " << k;
      if (!integers() || n == 1) continue;
      EXPECT_GT(worst(8), 1) << "m " << m << " n " << n << " k " << k;
    }
  }
}

TEST_P(FormatMatmul, SixteenBitsHaveTheBitsOfARowAlone) {
  const int64_t n = 100, k = 450, most = 40;
  cpu_.use_activations(16);
  const Loaded w = load_codes(cpu_, random_codes(param().format, n, k));
  const std::vector<float> x = Rng(5).normals(most * k), alone = rows_alone(w.matrix, x, most);
  for (const int64_t m : {2, 3, 8, 40}) {
    if (m > cpu::kGemvRows && !integers() && !cpu::has_amx_bf16()) continue;
    const std::vector<float> expected(alone.begin(), alone.begin() + m * n);
    EXPECT_EQ(product(cpu_, w.matrix, x.data(), m), expected) << m;
  }
}

TEST_P(FormatMatmul, HasTheBitsOfARowAlone) {
  const int64_t n = 100, k = 450, most = 40;
  const Loaded w = load_codes(cpu_, random_codes(param().format, n, k));
  const std::vector<float> x = Rng(5).normals(most * k), alone = rows_alone(w.matrix, x, most);
  CpuBackend other(3);
  for (const int64_t m : {2, 3, 5, 8, 40}) {
    if (m > rows_alike_here()) continue;
    const std::vector<float> expected(alone.begin(), alone.begin() + m * n);
    EXPECT_EQ(product(cpu_, w.matrix, x.data(), m), expected) << m;
    EXPECT_EQ(product(other, w.matrix, x.data(), m), expected) << m;
  }
}

TEST_P(FormatMatmul, GroupedLinearMatchesReference) {
  // AMX multiplies many float rows in bf16: 2^-9 each for x and w.
  const double tiles = !integers() && cpu::has_amx_bf16() ? 0x1p-8 / (8 * 0x1p-24) : 1;
  check_grouped_formats(cpu_, reference_, param().format, tiles);
  check_grouped_formats(cpu_, reference_, param().format, 1, 16);
}
LARIAT_ON_CPU(FormatMatmul, format_cases());

TEST(FormatMatmul, BlocksOfDifferentFormatsEqualSeparateProducts) {
  const std::vector<FormatCase> all = format_cases();
  CpuBackend cpu(2);
  const int64_t n = 37, k = 300;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Loaded> loaded;
    Weight weight, alone[3];
    for (size_t j = 0; j < 3; ++j) {
      loaded.push_back(load_codes(cpu, random_codes(all[(i + 5 * j) % all.size()].format, n, k, j + 1)));
      weight.blocks.push_back({loaded.back().matrix, {}});
      alone[j].blocks.push_back(weight.blocks.back());
    }
    for (const int64_t m : {1, 8, 20}) {
      const Tensor x(cpu, Rng(7).normals(m * k), m, k), out(cpu, m, 3 * n), expected(cpu, m, 3 * n);
      cpu.linear(x.view(), weight, {}, out.view());
      for (int64_t j = 0; j < 3; ++j) {
        cpu.linear(x.view(), alone[j], {}, expected.view().column_range(j * n, n));
      }
      EXPECT_EQ(out.values(), expected.values()) << all[i].name << " and others, m " << m;
    }
  }
}

// Every kernel of this processor, at the overflow limits.
TEST(FormatKernels, AllGiveTheSameBits) {
  CpuBackend cpu(1);
  const int64_t n = 128, k = 450;
  std::vector<void (*)(const cpu::QuantTask&)> kernels;
  if (cpu::has_avx2()) kernels.push_back(cpu::quant_dot_avx2);
  if (cpu::has_avx512_vnni()) kernels.push_back(cpu::quant_dot_vnni);
  for (const FormatCase& c : format_cases()) {
    if (!is_integer(c.format.grouping.code)) continue;
    for (const bool ends : {false, true}) {
      const HostWeight codes = random_codes(c.format, n, k, 1, ends);
      const Loaded weight = load_codes(cpu, codes);
      const QuantLayout layout(c.format.widened(), n, k);
      const Buffer widened = cpu.allocate(layout.bytes());
      Matrix wide(widened.data(), layout.format, n, k);
      c.format.grouping.bits == 0 ? void(wide = weight.matrix) : cpu::widen_tiles(weight.matrix, 0, wide);
      for (const int64_t m : {1, 2, 3, 4, 6}) {
        if (c.format.grouping.bits > 0 && m > (cpu::reads_planes(weight.matrix) ? cpu::kFewQuantRows : 0))
          continue;
        std::vector<float> values = Rng(8).normals(m * k);
        for (float& value : values) value = !ends ? value : value < 0 ? -1.0F : 1.0F;
        if (m == 1) std::fill(values.begin(), values.end(), -1.0F);
        const Tensor x(cpu, values, m, k), plain(cpu, m, n);
        const int64_t groups = QuantLayout(weight.matrix).groups() + 3;
        const Buffer memory = cpu.allocate(cpu::QuantRows::bytes(m, groups, 1));
        const cpu::QuantRows rows(memory.data(), m, groups, 1);
        cpu::quantize_rows(x.view(), rows, 0, m);
        for (int64_t tile = 0; tile < 8; ++tile) {
          cpu::quant_dot({rows, 0, m, wide, tile, 1, 1, plain.view()});
        }
        const int64_t tiles = m <= cpu::kFewQuantRows ? 4 : 2;
        for (const auto kernel : kernels) {
          const Tensor out(cpu, m, n), of_wide(cpu, m, n);
          for (int64_t tile = 0; tile < 8 / tiles; ++tile) {
            kernel({rows, 0, m, weight.matrix, tile, 8 / tiles, tiles, out.view()});
            kernel({rows, 0, m, wide, tile, 8 / tiles, tiles, of_wide.view()});
          }
          const std::string what =
              std::string(c.name) + (ends ? " ends, " : ", ") + std::to_string(m) + " rows";
          EXPECT_EQ(out.values(), of_wide.values()) << what;
          // AVX2 adds a group under nested scales as one integer, others each part as a float: sums of some
          // twenty floats round differently.
          if (kernel == cpu::quant_dot_avx2 && is_nested(c.format.grouping.scales)) {
            double largest = 0;
            for (const float value : plain.values()) largest = std::max(largest, std::abs(double{value}));
            expect_close(out.values(), plain.values(), 1e-6 * largest, 0, what);
          } else {
            EXPECT_EQ(out.values(), plain.values()) << what;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lariat::test
