#include "tests/bits_of_rows.h"
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

std::vector<int64_t> few_at_a_time(int64_t n) {
  std::vector<int64_t> chunks(static_cast<size_t>(n / 3), 3);
  if (n % 3 != 0) chunks.push_back(n % 3);
  return chunks;
}

using Attention = CpuOp<AttentionCase>;
TEST_P(Attention, MatchesReference) { check_attention(cpu_, reference_, param(), cpu_attention_tolerance); }
TEST_P(Attention, SplitDoesNotMatter) { check_attention_chunks(cpu_, param(), cpu_attention_tolerance); }
TEST_P(Attention, PagesOfOtherProcessesAreInvisible) {
  std::vector<float> sums, expected_sums;
  expect_close(run_attention(cpu_, param(), {param().n}, DType::kF32, &sums),
               run_attention(reference_, param(), {param().n}, DType::kF32, &expected_sums),
               cpu_attention_tolerance(param()), 0, "attention over some pages");
  expect_close(sums, expected_sums, cpu_attention_tolerance(param()), 1e-5, "sums");
}
LARIAT_ON_CPU(Attention, attention_cases());

// One kernel sums a row in one order, whatever the other rows. One thread: several would split the positions
// of a short chunk.
TEST(CpuAttention, ChunksThroughOneKernelGiveTheSameBits) {
  CpuBackend cpu(1);
  for (const AttentionCase& c : attention_cases()) {
    const int64_t block = (kAttentionRowsAlike + 1) * c.n_kv_heads / c.n_heads + 1;  // more rows per KV head
    if (c.n < 2 * block || block <= 3) continue;  // three tokens stay below the block kernel
    SCOPED_TRACE(testing::PrintToString(c));
    const CpuPaths before = cpu.paths();
    EXPECT_EQ(run_attention(cpu, c, {block, c.n - block}), run_attention(cpu, c, {c.n}));
    EXPECT_EQ(cpu.paths().attention_block - before.attention_block, 3);
    EXPECT_EQ(run_attention(cpu, c, std::vector<int64_t>(static_cast<size_t>(c.n), 1)),
              run_attention(cpu, c, few_at_a_time(c.n)));
    EXPECT_EQ(cpu.paths().attention_block - before.attention_block, 3);
  }
}

TEST(CpuAttention, ThreadsChangeBitsOnlyInALongContext) {
  CpuBackend one(1), five(5);
  int64_t changed = 0;
  for (const AttentionCase& c : attention_cases()) {
    const bool same = run_attention(one, c, {c.n}) == run_attention(five, c, {c.n});
    EXPECT_TRUE(same || c.first_position + c.n > kThreadsChangeBitsFrom) << testing::PrintToString(c);
    changed += same ? 0 : 1;
  }
  EXPECT_GT(changed, 0);
}

TEST(AttentionLaws, AlibiWeighsByDistance) {
  CpuBackend cpu(2);
  check_alibi_weights(cpu, DType::kF16, 1e-6);
  ReferenceBackend reference;
  check_alibi_weights(reference, DType::kF32, 1e-7);
}

TEST(AttentionLaws, HoldForAMillionPositions) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  AttentionCase c{1, 1000000, 2, 1, 8, 8, DType::kF16, DType::kF16};
  check_attention(cpu, reference, c);
  c.alibi = true;
  check_attention(cpu, reference, c);
}

// A softmax of only -inf is NaN, as in PyTorch; other heads are unaffected.
TEST(AttentionLaws, ARowOfMinusInfinityAffectsNoOther) {
  for (const int64_t depth : {0, 70, 5000}) {
    const AttentionCase c{1, depth, 2, 1, 64, 64, DType::kF32, DType::kF32};
    AttentionData data(c);
    for (float& key : data.keys) key = -1e30F;
    for (size_t d = 0; d < data.q.size(); ++d) data.q[d] = d < 64 ? 1e30F : 0.0F;
    CpuBackend cpu(2);
    Cache cache(cpu, depth + 1, 1, 64, DType::kF32, DType::kF32);
    cache.set_keys(data.keys);
    cache.set_values(std::vector<float>(data.values.size(), 0.5F));
    const Tensor q(cpu, data.q, 1, 128), out(cpu, 1, 128);
    // No rotation: every product keeps its sign.
    const Rope rope(cpu, depth, 1, std::vector<double>(32, 0.0), false, 1.0F);
    const StepSequence step = cache.sequence(depth, 1);
    cpu.attention({.sequences = {&step, 1}}, q.view(), causal(rope), cache.layer(),
                  {.n_heads = 2, .scale = 0.125F}, out.view());
    const auto values = out.values();
    for (size_t d = 0; d < 64; ++d) EXPECT_TRUE(std::isnan(values[d])) << "depth " << depth;
    for (size_t d = 64; d < 128; ++d) EXPECT_NEAR(values[d], 0.5F, 1e-6F) << "depth " << depth;
  }
}

}  // namespace
}  // namespace lariat::test
