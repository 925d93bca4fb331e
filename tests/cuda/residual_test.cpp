// Backend::matmul_add_norm on the CUDA backend: a product that joins the residual, and the norm behind it. Of
// many tokens cuBLAS adds the product to the residual.
#include <optional>

#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/row_cases.h"

namespace lariat::test {
namespace {

struct ResidualCase {
  DType weights, compute;
};

void PrintTo(const ResidualCase& c, std::ostream* out) {
  *out << name_of(c.weights) << " weights, " << name_of(c.compute) << " product";
}

struct ResidualShape {
  int64_t tokens, cols, rows, gap;
  float scale;
  std::optional<DType> bias;
};

void PrintTo(const ResidualShape& s, std::ostream* out) {
  *out << s.tokens << " tokens, " << s.cols << " to " << s.rows << ", scale " << s.scale << ", bias "
       << (s.bias ? name_of(*s.bias) : "none");
}

enum class NextNorm : uint8_t { kNone, kApart, kOverProduct };  // where the norm goes

struct CudaResidual : OnCudaWith<ResidualCase> {
  struct Result {
    std::vector<float> residual, product, out;
  };

  // at_once: as the backend does it, else as Backend has it, product and add_norm.
  Result run(Backend& backend, const ResidualShape& s, NextNorm next, bool at_once) const {
    std::vector<float> values = Rng(1000000).normals(s.rows * s.cols);
    const bool quantized = is_quantized(GetParam().weights);
    const Matrix host(values.data(), DType::kF32, s.rows, s.cols);
    const Weight weight = quantized ? backend.load_weight(host, GetParam().weights) : Weight();
    const Tensor w =
        quantized ? Tensor() : Tensor(backend, values, s.rows, s.cols, GetParam().weights, s.gap);
    const Tensor x(backend, Rng(81).normals(s.tokens * s.cols), s.tokens, s.cols, DType::kF32, s.gap);
    const Tensor residual(backend, Rng(82).normals(s.tokens * s.rows), s.tokens, s.rows, DType::kF32, s.gap);
    const Tensor bias = s.bias ? Tensor(backend, Rng(83).normals(s.rows), 1, s.rows, *s.bias) : Tensor();
    const Tensor product(backend, s.tokens, s.rows, s.gap), out(backend, s.tokens, s.rows);
    const NormData norm(backend, {s.tokens, s.rows}, {}, 1e-6F);
    const Product of = {quantized ? weight.matrix : w.view(), bias.view(), product.view()};
    const Norm behind = next == NextNorm::kNone ? Norm() : norm.norm;
    const Matrix& to = next == NextNorm::kOverProduct ? product.view() : out.view();
    if (at_once) {
      backend.matmul_add_norm(x.view(), of, GetParam().compute, residual.view(), s.scale, behind, to);
    } else {
      backend.Backend::matmul_add_norm(x.view(), of, GetParam().compute, residual.view(), s.scale, behind,
                                       to);
    }
    return {residual.values(), product.values(), out.values()};
  }

  bool is_added_by_cublas(const ResidualShape& s) const {
    const auto& [weights, compute] = GetParam();
    const bool mma =
        is_quantized(weights) || (weights == DType::kBF16 && compute == DType::kBF16 && s.cols % 8 == 0);
    const bool two_terms = weights == DType::kF16 && compute == DType::kF32;
    return s.tokens > (mma ? CudaBackend::kMmaTokens : CudaBackend::kGemvTokens) && !two_terms &&
           s.bias != DType::kBF16;
  }

  // Of quantised weights many tokens meet bf16 and not the reference's integers: those are judged by the
  // backend's own product. The bound is matmul_test.cpp's, and what rounding the sum costs.
  void check(const ResidualShape& s) {
    SCOPED_TRACE(testing::PrintToString(s));
    const std::vector<float> nothing(static_cast<size_t>(s.tokens * s.rows), NAN);
    Backend& judge = is_quantized(GetParam().weights) ? *cuda_ : reference_;
    const std::vector<float> expected = run(judge, s, NextNorm::kNone, false).residual;
    const double tolerance = s.scale * 8 * 0x1p-24 * 0.64 * static_cast<double>(s.cols + 2) +
                             4 * 0x1p-24 * largest_magnitude(expected);
    for (const NextNorm next : {NextNorm::kNone, NextNorm::kApart, NextNorm::kOverProduct}) {
      const Result actual = run(*cuda_, s, next, true);
      expect_close(actual.residual, expected, tolerance, 0, "residual");
      const bool over = next == NextNorm::kOverProduct;
      if (!over) {
        EXPECT_EQ(std::isnan(actual.product[0]), is_added_by_cublas(s)) << "a product of its own";
      }
      if (next != NextNorm::kApart) expect_close(actual.out, nothing, 0, 0, "no norm");
      if (next == NextNorm::kNone) continue;
      const Tensor sum(reference_, actual.residual, s.tokens, s.rows);
      reference_.norm(sum.view(), NormData(reference_, {s.tokens, s.rows}, {}, 1e-6F).norm, sum.view());
      expect_normed(over ? actual.product : actual.out, sum.values(), {}, "norm");
    }
  }
};

TEST_P(CudaResidual, AsProductAndSum) {
  for (const int64_t tokens : {1, 8, 9, 17, 40}) {
    for (const std::optional<DType>& bias : {std::optional<DType>(), {DType::kF32}, {DType::kBF16}}) {
      check({tokens, 72, 33, 0, 1.0F, bias});
      check({tokens, 67, 40, 3, 0.22F, bias});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    DTypes, CudaResidual,
    testing::Values(ResidualCase{DType::kF32, DType::kF32}, ResidualCase{DType::kF16, DType::kF32},
                    ResidualCase{DType::kBF16, DType::kF32}, ResidualCase{DType::kF32, DType::kBF16},
                    ResidualCase{DType::kF16, DType::kBF16}, ResidualCase{DType::kBF16, DType::kBF16},
                    ResidualCase{DType::kQ8, DType::kF32}, ResidualCase{DType::kQ4, DType::kF32}));

}  // namespace
}  // namespace lariat::test
