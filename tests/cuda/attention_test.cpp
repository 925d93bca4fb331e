#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

// Decode splits q and weights into two 16-bit terms: the error is 2^-17 of a bf16, 2^-22 of an f16 value.
// Prefill keeps one term. Errors of a score's products are independent: for |s| up to S they sum to a part of
// S times the rounding, here S / 2.
double tolerance(const AttentionCase& c, bool fine) {
  const auto half_step = [&](DType dtype) {
    return dtype == DType::kF16    ? (fine ? 0x1p-22 : 0x1p-11)
           : dtype == DType::kBF16 ? (fine ? 0x1p-16 : 0x1p-8)
                                   : 0;
  };
  const double largest_value = c.fill == Fill::kDenormal ? 4e-6 : 4.0;
  const double largest_score = c.fill == Fill::kHuge ? 5e4 : 5.0;
  const double small = c.fill == Fill::kDenormal ? 0x1p-24 : 0;  // f16 weights are multiples of it
  return attention_tolerance(c) +
         largest_value * (half_step(c.k_dtype) * largest_score / 2 + half_step(c.v_dtype) / 2 + small);
}
double tolerance(const AttentionCase& c) { return tolerance(c, c.n * (c.n_heads / c.n_kv_heads) <= 32); }

// Adds head sizes and types of the tensor-core kernels.
std::vector<AttentionCase> cases() {
  constexpr DType f16 = DType::kF16, bf16 = DType::kBF16;
  std::vector<AttentionCase> all = attention_cases();
  for (int64_t head_dim : {8, 64, 72, 80, 96, 112, 128, 200, 256}) {
    all.push_back({1, 300, 4, 2, head_dim, head_dim, f16, bf16});
    all.push_back({70, 130, 2, 1, head_dim, head_dim, f16, f16, 40});
  }
  for (int64_t head_dim : {64, 80, 128}) {  // more blocks of 128 packed rows than multiprocessors
    all.push_back({34, 40, 268, 67, head_dim, head_dim, f16, bf16});
    all.push_back({34, 40, 268, 67, head_dim, head_dim / 2, bf16, bf16, 20});
  }
  for (int64_t group : {1, 2, 3, 7, 16, 17, 32, 33}) all.push_back({1, 200, group, 1, 64, 64, bf16, bf16});
  for (int64_t n : {2, 15, 16, 17, 63, 64, 65, 128}) all.push_back({n, 60, 2, 2, 64, 64, f16, f16});
  return all;
}

using CudaAttention = OnCudaWith<AttentionCase>;
TEST_P(CudaAttention, MatchesTheReference) {
  const AttentionCase& c = GetParam();
  expect_close(run_attention(*cuda_, c, {c.n}), run_attention(reference_, c, {c.n}), tolerance(c), 0,
               "attention");
}
TEST_P(CudaAttention, DoesNotDependOnChunks) {
  const AttentionCase& c = GetParam();
  const int64_t work = c.n * c.n_heads * (c.first_position + c.n) * c.head_dim;
  if (c.n < 9 || work > 3000000) LARIAT_SKIP("one chunk, or long");
  expect_close(run_attention(*cuda_, c, {1, 7, c.n - 8}), run_attention(*cuda_, c, {c.n}), 2 * tolerance(c),
               0, "attention in chunks");
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaAttention, testing::ValuesIn(cases()));

// The longest sequence selects the kernel.
using CudaStepOps = OnCudaWith<StepCase>;
TEST_P(CudaStepOps, MatchTheReference) {
  int64_t longest = 0;
  for (const auto& piece : GetParam().pieces) longest = std::max(longest, piece.n);
  const bool fine = longest * (GetParam().n_heads / GetParam().n_kv_heads) <= 32;
  check_step_attention(
      *cuda_, reference_, GetParam(),
      fine ? +[](const AttentionCase& c) { return tolerance(c, true); }
           : +[](const AttentionCase& c) { return tolerance(c, false); });
}
TEST_P(CudaStepOps, RerotationMatchesTheReference) { check_step_rerotation(*cuda_, reference_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaStepOps, testing::ValuesIn(step_cases()));

using CudaManySequences = OnCuda;
// More sequences than one launch argument holds.
TEST_F(CudaManySequences, MatchTheReference) {
  StepCase c;
  for (int64_t i = 0; i < 100; ++i) c.pieces.push_back({i * 7 % 300, 1 + i % 3});
  c.n_layers = 2;
  c.head_dim = c.rotary_dim = 16;
  check_step_attention(*cuda_, reference_, c, [](const AttentionCase& one) { return tolerance(one, true); });
  check_step_rerotation(*cuda_, reference_, c);
}

using CudaAlibi = OnCuda;
TEST_F(CudaAlibi, WeighsByDistance) {
  check_alibi_weights(*cuda_, DType::kF32, 1e-6);
  check_alibi_weights(*cuda_, DType::kF16, 0x1p-11);  // prefill rounds weights to f16
}

}  // namespace
}  // namespace lariat::test
