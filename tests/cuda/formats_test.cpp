// Published weight formats: products of few tokens and of experts equal the float64 reference on the same
// quantized values; many tokens use bf16.
#include <fmt/format.h>

#include "kernels/host_weight.h"
#include "kernels/quant.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/grouped_formats.h"

namespace lariat::test {
namespace {

struct CudaFormats : OnCudaWith<FormatCase> {
  static std::vector<float> product(Backend& backend, std::span<const HostWeight> host,
                                    const std::vector<float>& x, int64_t tokens,
                                    DType compute = DType::kF32) {
    std::vector<WeightFormat> formats;
    for (const HostWeight& weight : host) formats.push_back(weight.m.format());
    const LoadedWeight loaded = backend.load_weight(host, formats, compute);
    const Tensor rows(backend, x, tokens, host[0].m.cols), out(backend, tokens, loaded.weight.rows(), 3);
    backend.linear(rows.view(), loaded.weight, {}, out.view());
    return out.values();
  }
  // Reference product with the weight's bf16 values.
  std::vector<float> product_in_bf16(const HostWeight& host, const std::vector<float>& x, int64_t tokens) {
    const auto [rows, cols] = std::pair{host.m.rows, host.m.cols};
    std::vector<float> values(static_cast<size_t>(rows * cols));
    const WeightFormat format = host.m.format();
    const LoadedWeight stored = reference_.load_weight({&host, 1}, {&format, 1}, DType::kF32);
    for (int64_t i = 0; i < rows * cols; ++i) {
      values[static_cast<size_t>(i)] =
          round_to_bf16(dequantized(stored.weight.blocks[0].w, i / cols, i % cols));
    }
    const HostWeight floats(Matrix(values.data(), DType::kF32, rows, cols));
    return product(reference_, {&floats, 1}, x, tokens, DType::kBF16);
  }
};

// LinearProblem::tolerance with weights of at most 3.
double tolerance(int64_t cols) { return 3 * 8 * 0x1p-24 * static_cast<double>(cols + 4); }

TEST_P(CudaFormats, ProductsMatchTheReference) {
  const WeightFormat& format = GetParam().format;
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 40}, {19, 137}, {33, 520}, {18, 2100}}) {
    const HostWeight host = random_codes(format, rows, cols);
    for (const int64_t tokens : {1, 2, 8, 9, 17, 40}) {
      if (cols > 2000 && tokens > 2) continue;
      const std::vector<float> x = Rng(77).normals(tokens * cols);
      const std::vector<float> expected =
          tokens > 16 ? product_in_bf16(host, x, tokens) : product(reference_, {&host, 1}, x, tokens);
      expect_close(product(*cuda_, {&host, 1}, x, tokens), expected, tolerance(cols), 0,
                   fmt::format("{} tokens, {} to {}", tokens, cols, rows));
    }
  }
}

// Activations of 16 bits, also for many tokens.
TEST_P(CudaFormats, SixteenBitsMatchUnroundedActivations) {
  cuda_->use_activations(16);
  reference_.use_activations(16);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {3, 40}, {19, 137}, {33, 520}}) {
    const HostWeight host = random_codes(GetParam().format, rows, cols);
    for (const int64_t tokens : {1, 2, 9, 17}) {
      const std::vector<float> x = Rng(77).normals(tokens * cols);
      expect_close(product(*cuda_, {&host, 1}, x, tokens), product(reference_, {&host, 1}, x, tokens),
                   wide_tolerance(x.data(), cols) + 1e-6, 0,
                   fmt::format("{} tokens, {} to {}", tokens, cols, rows));
    }
  }
}

TEST_P(CudaFormats, ExpertsMatchTheReference) {
  check_grouped_formats(*cuda_, reference_, GetParam().format);
  check_grouped_formats(*cuda_, reference_, GetParam().format, 1, 16);
}

TEST_P(CudaFormats, Embed) {
  const HostWeight host = random_codes(GetParam().format, 37, 331);
  const WeightFormat format = GetParam().format;
  const std::vector<int32_t> tokens = {36, 0, 15, 16, 31, 36};
  const auto embedded = [&](Backend& backend) {
    const LoadedWeight table = backend.load_weight({&host, 1}, {&format, 1}, DType::kF32);
    const Tensor out(backend, std::ssize(tokens), 331, 5);
    backend.embed(tokens, table.weight.blocks[0].w, 1.5F, out.view());
    return out.values();
  };
  expect_close(embedded(*cuda_), embedded(reference_), 0, 0, "embed");
}

// A NaN reaches only outputs that depend on it.
TEST_P(CudaFormats, NotFinite) {
  const WeightFormat& format = GetParam().format;
  const HostWeight finite = random_codes(format, 18, 300);
  const HostWeight host(format, 18, 300, [&](int64_t row, const CodeRow& to) {
    finite.read_row(row, to);
    if (row != 17) return;
    if (format.grouping.code == Code::kE4M3) {
      to.codes[299] = 0xff;
    } else {
      (is_nested(format.grouping.scales) ? to.outer : to.scales)[0] = NAN;
    }
  });
  for (const int64_t tokens : {3, 20}) {
    const std::vector<float> out =
        product(*cuda_, {&host, 1}, std::vector<float>(static_cast<size_t>(tokens) * 300, 1.0F), tokens);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i % 18 == 17) << i;
  }
}

// One weight with blocks of this format, of another and of floats.
TEST_P(CudaFormats, BesideOthers) {
  const std::vector<float> floats = Rng(3).normals(int64_t{21} * 200, 0.5F);
  const std::vector<HostWeight> host = {
      random_codes({DType::kQ4, {Code::kLinear, ScaleType::kNested, true, 32, 256}}, 17, 200, 1),
      random_codes(GetParam().format, 20, 200, 2),
      Matrix(const_cast<float*>(floats.data()), DType::kF32, 21, 200)};
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const std::vector<float> x = Rng(78).normals(int64_t{11} * 200);
    expect_close(product(*cuda_, host, x, 11, compute), product(reference_, host, x, 11, compute),
                 tolerance(200), 0, "products");
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaFormats, testing::ValuesIn(format_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lariat::test
