// Backend::linear on the CUDA backend: its own products for a few tokens and cuBLAS for many, and every
// epilogue, against the float64 reference.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {
namespace {

struct Shape {
  int64_t tokens, rows, cols;
  int64_t gap = 0;
  bool bias = false;
};

class CudaLinear : public OnCudaWith<LinearCase> {
 protected:
  std::vector<float> run(Backend& backend, const Shape& s, const std::vector<int64_t>& chunks) {
    Rng rng(31);
    const Tensor x(backend, rng.normals(s.tokens * s.cols), s.tokens, s.cols, DType::kF32, s.gap);
    const Tensor w(backend, rng.normals(s.rows * s.cols), s.rows, s.cols, GetParam().weights, s.gap);
    const Tensor bias(backend, rng.normals(s.rows), 1, s.rows, DType::kBF16);
    const Tensor out(backend, s.tokens, s.rows, s.gap);
    int64_t first = 0;
    for (int64_t chunk : chunks) {
      multiply(backend, x.view().row_range(first, chunk), w.view(), s.bias ? bias.view() : Matrix(),
               GetParam().compute, out.view().row_range(first, chunk));
      first += chunk;
    }
    return out.values();
  }

  // Sums of `cols` products of normals in f32: some eight times their standard deviation.
  static double tolerance(const Shape& s) { return 8 * 0x1p-24 * 0.64 * static_cast<double>(s.cols + 2); }
};

TEST_P(CudaLinear, FewTokens) {
  for (int64_t tokens : {1, 2, 4, 5, 8, 9, 16}) {
    for (auto [rows, cols] :
         {std::pair{1, 1}, {3, 8}, {2, 257}, {5, 256}, {17, 1024}, {200, 72}, {33, 4104}, {530, 40}}) {
      const Shape s = {tokens, rows, cols};
      expect_close(run(*cuda_, s, {tokens}), run(reference_, s, {tokens}), tolerance(s), 0,
                   std::to_string(tokens) + " x " + std::to_string(rows) + " x " + std::to_string(cols));
    }
  }
}

TEST_P(CudaLinear, ManyTokens) {
  for (auto [tokens, rows, cols] : {std::tuple{9, 5, 3}, {17, 64, 72}, {130, 31, 40}}) {
    const Shape s = {tokens, rows, cols};
    expect_close(run(*cuda_, s, {tokens}), run(reference_, s, {tokens}), tolerance(s), 0, "many tokens");
  }
}

TEST_P(CudaLinear, StridesAndBias) {
  for (int64_t tokens : {1, 3, 8, 12, 18}) {
    for (int64_t gap : {3, 8}) {  // 3 breaks the alignment of rows, 8 keeps it
      const Shape s = {tokens, 19, 136, gap, true};
      expect_close(run(*cuda_, s, {tokens}), run(reference_, s, {tokens}), tolerance(s), 0, "strides, bias");
    }
  }
}

TEST_P(CudaLinear, DoesNotDependOnChunks) {
  const Shape s = {41, 40, 256};
  expect_close(run(*cuda_, s, {1, 3, 8, 12, 17}), run(*cuda_, s, {41}), 2 * tolerance(s), 0, "chunks");
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaLinear, testing::ValuesIn(linear_cases()));

// Rows that are no multiple of any tile, and so few that blocks of a product have most of their rows beyond
// its end; columns in whole batches and not; rows that are not aligned, by their length or by a gap; and
// enough rows for blocks of two tiles. (Quantised weights of many tokens meet bf16: quant_test.cpp.)
using CudaEpilogue = OnCudaWith<EpilogueCase>;
TEST_P(CudaEpilogue, MatchesTheReference) {
  const EpilogueCase& c = GetParam();
  const bool quantized = std::any_of(c.weights.begin(), c.weights.end(), is_quantized);
  for (const int64_t tokens : {1, 2, 5, 8, 9, 16, 17, 40}) {
    if (quantized && tokens > 16) continue;
    check_epilogue(*cuda_, reference_, c, {tokens, 72, 33});
    check_epilogue(*cuda_, reference_, c, {tokens, 67, 19, 3});
    if (tokens % 8 == 1) check_epilogue(*cuda_, reference_, c, {tokens, 1288, 16, 8});
    if (tokens == 5) check_epilogue(*cuda_, reference_, c, {tokens, 136, 400});
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaEpilogue, testing::ValuesIn(epilogue_cases({DType::kF32, DType::kBF16})));

// What a layer's inputs are stored as, and that its blocks are one product of many tokens.
TEST_F(OnCuda, InputsAreStoredAsProductsReadThem) {
  const std::vector<float> zeros(size_t{8} * 8);
  const auto input = [&](std::vector<DType> dtypes, DType compute) {
    const std::vector<Matrix> hosts(dtypes.size(),
                                    Matrix(const_cast<float*>(zeros.data()), DType::kF32, 8, 8));
    return cuda_->load_weight(hosts, dtypes, compute).weight.input;
  };
  constexpr DType f32 = DType::kF32, bf16 = DType::kBF16;
  EXPECT_EQ(input({bf16, bf16}, bf16), bf16);
  EXPECT_EQ(input({bf16, DType::kF16}, bf16), f32);
  EXPECT_EQ(input({bf16}, f32), f32);
  EXPECT_EQ(input({DType::kQ8}, f32), f32);
}

}  // namespace
}  // namespace lariat::test
