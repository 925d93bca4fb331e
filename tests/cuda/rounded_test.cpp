// Ops that write bf16 for a product that rounds its input (Weight::input): bitwise identical to the rounded
// f32 result, and close to the float64 reference.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

constexpr DType kRounded = DType::kBF16;

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = round_to_bf16(value);
  return values;
}

template <class Write>
void expect_rounds(Backend& tested, Backend& reference, const RowCase& c, const std::string& what,
                   const Write& write) {
  const auto run = [&](Backend& backend, DType dtype) {
    const Tensor out(backend, c.rows, c.cols, c.gap, dtype);
    write(backend, out.view());
    return out.values();
  };
  const std::vector<float> actual = run(tested, kRounded), expected = run(reference, kRounded);
  expect_close(actual, rounded(run(tested, DType::kF32)), 0, 0, what + ", f32 rounded");
  expect_same_rounding(actual, expected, kRounded, 4 * largest_magnitude(expected), what);
}

using CudaRounded = OnCudaWith<RowCase>;

TEST_P(CudaRounded, Norm) {
  const RowCase& c = GetParam();
  const std::vector<float> values = Rng(61).normals(c.rows * c.cols, 3.0F);
  for (const NormKind kind : kNormKinds) {
    expect_rounds(*cuda_, reference_, c, testing::PrintToString(kind), [&](Backend& b, const Matrix& out) {
      const Tensor x(b, values, c.rows, c.cols, DType::kF32, c.gap);
      const NormData data(b, c, kind, 1e-5F);
      b.norm(x.view(), data.norm, out);
    });
  }
}

TEST_P(CudaRounded, AddNorm) {
  const RowCase& c = GetParam();
  Rng rng(62);
  const std::vector<float> values = rng.normals(c.rows * c.cols), change = rng.normals(c.rows * c.cols);
  for (const NormKind kind : kNormKinds) {
    expect_rounds(*cuda_, reference_, c, testing::PrintToString(kind), [&](Backend& b, const Matrix& out) {
      const Tensor x(b, values, c.rows, c.cols, DType::kF32, c.gap), delta(b, change, c.rows, c.cols);
      const NormData data(b, c, kind, 1e-5F);
      b.add_norm(x.view(), delta.view(), 1.0F, data.norm, out);
    });
  }
}

TEST_P(CudaRounded, Glu) {
  const RowCase& c = GetParam();
  Rng rng(63);
  const std::vector<float> values = rng.normals(c.rows * c.cols, 3.0F), factor = rng.normals(c.rows * c.cols);
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu2}) {
    for (const bool gated : {true, false}) {
      expect_rounds(*cuda_, reference_, c, "glu", [&](Backend& b, const Matrix& out) {
        const Tensor gate(b, values, c.rows, c.cols, DType::kF32, c.gap), up(b, factor, c.rows, c.cols);
        b.glu(gate.view(), gated ? up.view() : Matrix(), activation, out);
      });
    }
  }
}

// Rows of one element to several blocks; 16-byte aligned in f32 only, in both dtypes, in neither.
INSTANTIATE_TEST_SUITE_P(Cases, CudaRounded,
                         testing::Values(RowCase{1, 1}, RowCase{3, 2}, RowCase{3, 7, DType::kBF16, 5},
                                         RowCase{2, 64}, RowCase{5, 65, DType::kF16, 3}, RowCase{4, 100},
                                         RowCase{4, 100, DType::kBF16, 4}, RowCase{3, 1000, DType::kF32, 8},
                                         RowCase{2, 4096, DType::kBF16}, RowCase{19, 2051, DType::kBF16, 3}));

// Every kernel; splits merged by the last block or a separate kernel.
std::vector<AttentionCase> rounded_attention_cases() {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, q8 = DType::kQ8;
  return {{1, 0, 1, 1, 64, 64},
          {1, 3000, 8, 2, 64, 64},                 // one token, split
          {3, 700, 4, 2, 128, 128, f16, bf16},     // few tokens, split
          {20, 30, 2, 2, 80, 80, bf16, bf16},      // few tokens
          {70, 130, 4, 2, 96, 96, f16, bf16, 40},  // 64 rows per block
          {40, 2100, 2, 1, 64, 64, f16, f16},      // merged by a separate kernel
          {34, 40, 268, 67, 64, 64, f16, bf16},    // 128 rows per block
          {70, 250, 2, 2, 256, 256, bf16, bf16},
          {33, 5, 5, 1, 34, 34, f16, f16},    // plain
          {9, 300, 2, 1, 10, 10, f32, f32},   // unaligned rows
          {3, 1200, 3, 1, 24, 24, f32, q8}};  // split
}

using CudaRoundedAttention = OnCudaWith<AttentionCase>;
TEST_P(CudaRoundedAttention, HasTheBitsOfF32) {
  const AttentionCase& c = GetParam();
  expect_close(run_attention(*cuda_, c, {c.n}, kRounded), rounded(run_attention(*cuda_, c, {c.n})), 0, 0,
               "attention");
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaRoundedAttention, testing::ValuesIn(rounded_attention_cases()));

}  // namespace
}  // namespace lariat::test
