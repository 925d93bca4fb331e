// Backend::project and Backend::gated on the CUDA backend: several products of one x in one launch, against
// the float64 reference, which makes them one by one.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

struct ProjectCase {
  std::vector<DType> weights;  // of each product
  DType compute;
};

void PrintTo(const ProjectCase& c, std::ostream* out) {
  for (DType weights : c.weights) *out << name_of(weights) << " ";
  *out << "weights, " << name_of(c.compute) << " product";
}

struct ProjectShape {
  int64_t tokens, cols, gap = 0;
  std::vector<int64_t> rows;
};

struct CudaProject : OnCudaWith<ProjectCase> {
  // Of product i of a shape, on one backend. The middle one has no bias. (Seeds far apart: those of
  // neighbours make the same numbers a few places on, and sums of their products are not those of independent
  // ones.)
  struct Operands {
    Weight quantized;
    Tensor w, bias, out;
    Product product;

    Operands(Backend& backend, const ProjectShape& s, size_t i, DType dtype)
        : bias(backend, Rng(50000000 + i).normals(s.rows[i]), 1, s.rows[i], DType::kBF16),
          out(backend, s.tokens, s.rows[i], s.gap) {
      std::vector<float> values = Rng(1000000 * (i + 1)).normals(s.rows[i] * s.cols);
      if (is_quantized(dtype)) {
        quantized = backend.load_weight(Matrix(values.data(), DType::kF32, s.rows[i], s.cols), dtype);
      } else {
        w = Tensor(backend, values, s.rows[i], s.cols, dtype, s.gap);
      }
      product = {w.view() ? w.view() : quantized.matrix, i == 1 ? Matrix() : bias.view(), out.view()};
    }
  };

  struct Run {
    Tensor x;
    std::vector<Operands> operands;

    Run(Backend& backend, const ProjectShape& s, const ProjectCase& c)
        : x(backend, Rng(71).normals(s.tokens * s.cols), s.tokens, s.cols, DType::kF32, s.gap) {
      for (size_t i = 0; i < s.rows.size(); ++i) operands.emplace_back(backend, s, i, c.weights[i]);
    }
    std::vector<Product> products() const {
      std::vector<Product> all;
      for (const Operands& each : operands) all.push_back(each.product);
      return all;
    }
  };

  // As in matmul_test.cpp.
  static double tolerance(const ProjectShape& s) {
    return 8 * 0x1p-24 * 0.64 * static_cast<double>(s.cols + 2);
  }

  void check_project(const ProjectShape& s) {
    const Run tested(*cuda_, s, GetParam()), expected(reference_, s, GetParam());
    cuda_->project(tested.x.view(), tested.products(), GetParam().compute);
    reference_.project(expected.x.view(), expected.products(), GetParam().compute);
    for (size_t i = 0; i < s.rows.size(); ++i) {
      expect_close(tested.operands[i].out.values(), expected.operands[i].out.values(), tolerance(s), 0,
                   std::to_string(s.tokens) + " tokens, " + std::to_string(s.cols) + " columns, product " +
                       std::to_string(i));
    }
  }

  void check_gated(const ProjectShape& s, Activation activation) {
    const Run tested(*cuda_, s, GetParam()), expected(reference_, s, GetParam());
    const auto run = [&](Backend& backend, const Run& of, bool in_place) {
      const std::vector<Product> pair = of.products();
      const Tensor out(backend, s.tokens, s.rows[0]);
      backend.gated(of.x.view(), pair[0], pair[1], activation, GetParam().compute,
                    in_place ? pair[0].out : out.view());
      return in_place ? of.operands[0].out.values() : out.values();
    };
    // Both factors are at most six times their standard deviation, sqrt(cols); an activation's slope, 1.13.
    const double size = 6 * std::sqrt(static_cast<double>(s.cols));
    const std::vector<float> actual = run(*cuda_, tested, false);
    expect_close(run(*cuda_, tested, true), actual, 0, 0, "in gate's place");
    expect_close(actual, run(reference_, expected, true), 2.2 * size * tolerance(s), 1e-5,
                 std::to_string(s.tokens) + " tokens, " + std::to_string(s.cols) + " columns, activation " +
                     std::to_string(static_cast<int>(activation)));
  }
};

// Rows that are no multiple of any tile, and so few that blocks of a product have most of their rows beyond
// its end; columns in whole batches and not; rows that are not aligned, by their length or by a gap.
TEST_P(CudaProject, AsOneByOne) {
  for (int64_t tokens : {1, 2, 5, 8, 9, 16, 17}) {
    check_project({tokens, 72, 0, {33, 17, 5}});
    check_project({tokens, 1288, 8, {1, 16, 40}});
    check_project({tokens, 67, 3, {34, 2, 17}});
  }
}

// Enough rows for blocks of two tiles.
TEST_P(CudaProject, ManyRows) {
  for (int64_t tokens : {1, 3, 12}) check_project({tokens, 136, 0, {400, 90, 101}});
}

TEST_P(CudaProject, GatedAsProductsAndActivation) {
  for (int64_t tokens : {1, 2, 7, 8, 9, 16, 17}) {
    check_gated({tokens, 72, 0, {35, 35}}, Activation::kSilu);
    check_gated({tokens, 1288, 8, {16, 16}}, Activation::kGeluTanh);
    check_gated({tokens, 67, 3, {19, 19}}, Activation::kGelu);
  }
}

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;

INSTANTIATE_TEST_SUITE_P(OneDType, CudaProject,
                         testing::Values(ProjectCase{{kF32, kF32, kF32}, kF32},
                                         ProjectCase{{kF16, kF16, kF16}, kF32},
                                         ProjectCase{{kF16, kF16, kF16}, kBF16},
                                         ProjectCase{{kBF16, kBF16, kBF16}, kF32},
                                         ProjectCase{{kBF16, kBF16, kBF16}, kBF16}));

// What several kernels share among them: x, rounded in more than one way.
struct CudaProjectMixed : CudaProject {};

TEST_P(CudaProjectMixed, AsOneByOne) {
  for (int64_t tokens : {1, 9, 17}) check_project({tokens, 72, 0, {33, 17, 5}});
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaProjectMixed,
                         testing::Values(ProjectCase{{kBF16, kF16, kBF16}, kBF16},
                                         ProjectCase{{kBF16, kF16, kBF16}, kF32},
                                         ProjectCase{{kF16, kF32, kF16}, kF32}));

// Quantised weights, up to the number of tokens that are multiplied as integers.
struct CudaProjectQuant : CudaProject {};

TEST_P(CudaProjectQuant, AsOneByOne) {
  for (int64_t tokens : {1, 4, 8}) check_project({tokens, 200, 0, {33, 17, 5}});
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaProjectQuant,
                         testing::Values(ProjectCase{{DType::kQ8, DType::kQ8, DType::kQ8}, kF32},
                                         ProjectCase{{DType::kQ4, DType::kQ4, DType::kQ4}, kF32},
                                         ProjectCase{{DType::kQ8, DType::kQ4, kBF16}, kF32}));

}  // namespace
}  // namespace lariat::test
