// Backend::matmul on the CUDA backend: its own products for a few tokens and cuBLAS for many, against the
// float64 reference.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

struct MatmulCase {
  DType weights, compute;
};

void PrintTo(const MatmulCase& c, std::ostream* out) {
  *out << name_of(c.weights) << " weights, " << name_of(c.compute) << " product";
}

std::vector<MatmulCase> matmul_test_cases() {
  std::vector<MatmulCase> all;
  for (DType weights : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType compute : {DType::kF32, DType::kBF16}) all.push_back({weights, compute});
  }
  return all;
}

struct Shape {
  int64_t tokens, rows, cols;
  int64_t gap = 0;
  bool bias = false;
};

class CudaMatmul : public OnCudaWith<MatmulCase> {
 protected:
  std::vector<float> run(Backend& backend, const Shape& s, const std::vector<int64_t>& chunks) {
    Rng rng(31);
    const Tensor x(backend, rng.normals(s.tokens * s.cols), s.tokens, s.cols, DType::kF32, s.gap);
    const Tensor w(backend, rng.normals(s.rows * s.cols), s.rows, s.cols, GetParam().weights, s.gap);
    const Tensor bias(backend, rng.normals(s.rows), 1, s.rows, DType::kBF16);
    const Tensor out(backend, s.tokens, s.rows, s.gap);
    int64_t first = 0;
    for (int64_t chunk : chunks) {
      backend.matmul(x.view().row_range(first, chunk), w.view(), s.bias ? bias.view() : Matrix(),
                     GetParam().compute, out.view().row_range(first, chunk));
      first += chunk;
    }
    return out.values();
  }

  // Sums of `cols` products of normals in f32: some eight times their standard deviation.
  static double tolerance(const Shape& s) { return 8 * 0x1p-24 * 0.64 * static_cast<double>(s.cols + 2); }
};

TEST_P(CudaMatmul, FewTokens) {
  for (int64_t tokens : {1, 2, 4, 5, 8, 9, 16}) {
    for (auto [rows, cols] :
         {std::pair{1, 1}, {3, 8}, {2, 257}, {5, 256}, {17, 1024}, {200, 72}, {33, 4104}, {530, 40}}) {
      const Shape s = {tokens, rows, cols};
      expect_close(run(*cuda_, s, {tokens}), run(reference_, s, {tokens}), tolerance(s), 0,
                   std::to_string(tokens) + " x " + std::to_string(rows) + " x " + std::to_string(cols));
    }
  }
}

TEST_P(CudaMatmul, ManyTokens) {
  for (auto [tokens, rows, cols] : {std::tuple{9, 5, 3}, {17, 64, 72}, {130, 31, 40}}) {
    const Shape s = {tokens, rows, cols};
    expect_close(run(*cuda_, s, {tokens}), run(reference_, s, {tokens}), tolerance(s), 0, "many tokens");
  }
}

TEST_P(CudaMatmul, StridesAndBias) {
  for (int64_t tokens : {1, 3, 8, 12, 18}) {
    for (int64_t gap : {3, 8}) {  // 3 breaks the alignment of rows, 8 keeps it
      const Shape s = {tokens, 19, 136, gap, true};
      expect_close(run(*cuda_, s, {tokens}), run(reference_, s, {tokens}), tolerance(s), 0, "strides, bias");
    }
  }
}

TEST_P(CudaMatmul, DoesNotDependOnChunks) {
  const Shape s = {41, 40, 256};
  expect_close(run(*cuda_, s, {1, 3, 8, 12, 17}), run(*cuda_, s, {41}), 2 * tolerance(s), 0, "chunks");
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaMatmul, testing::ValuesIn(matmul_test_cases()));

}  // namespace
}  // namespace lariat::test
