// Every family through every CPU kernel: 320 tokens at once (GEMM, block attention) and one at a time (decode
// product, streaming attention). LARIAT_TEST_TARGET selects older instruction sets.
#include "tests/engine/long_golden.h"

namespace lariat::test {
namespace {

class LongPrompt : public testing::TestWithParam<LongCase> {
 protected:
  LongPrompt() : golden_(GetParam()) {}

  std::vector<float> run(CpuBackend& backend, int64_t chunk, size_t prefilled = 320) const {
    const Model model = open_long(GetParam(), backend);
    SessionOptions options = long_session(GetParam());
    options.prefill_chunk = chunk;
    Session session(model, backend, options);
    return all_logits(session, golden_.tokens, prefilled);
  }
  void expect_golden(std::span<const float> logits) const { golden_.expect(logits); }
  int64_t layers() const {
    return static_cast<int64_t>(load_config(checkpoint_dir(GetParam().name)).layers.size());
  }

  const LongGolden golden_;
};

class LongDynamicPrompt : public LongPrompt {};

TEST_P(LongDynamicPrompt, AtOnce) {
  CpuBackend backend(2);
  expect_golden(run(backend, 0));
}

TEST_P(LongPrompt, AtOnceThroughGemmAndBlockAttention) {
  for (const int threads : {1, 2}) {
    CpuBackend backend(threads);
    expect_golden(run(backend, 0));
    EXPECT_EQ(backend.paths().gemm, 7 * layers() + 5) << "7 per layer, and the head for 64 rows at a time";
    EXPECT_EQ(backend.paths().gemv, 0);
    EXPECT_EQ(backend.paths().attention_block, layers());
    EXPECT_EQ(backend.paths().attention_stream, 0);
  }
}

TEST_P(LongPrompt, TokenByTokenThroughGemvAndStreamingAttention) {
  CpuBackend backend(1);
  expect_golden(run(backend, 0, 1));
  EXPECT_EQ(backend.paths().gemv, 320 * (7 * layers() + 1));
  EXPECT_EQ(backend.paths().gemm, 0);
  EXPECT_EQ(backend.paths().attention_stream, 320 * layers());
  EXPECT_EQ(backend.paths().attention_block, 0);
}

TEST_P(LongPrompt, PrefilledAndDecoded) {
  CpuBackend backend(2);
  expect_golden(run(backend, 64, 290));
  expect_golden(run(backend, 5, 20));
  EXPECT_GT(backend.paths().attention_block, 0);
  EXPECT_GT(backend.paths().attention_stream, 0);
}

// Checks the split guarantee of kernels/backend.h.
TEST_P(LongPrompt, ChunksThroughTheSameKernelsGiveTheSameBits) {
  CpuBackend backend(2);
  const std::vector<float> expected = run(backend, 0);
  for (const int64_t chunk : {16, 32, 64, 100, 160}) {
    EXPECT_EQ(run(backend, chunk), expected) << "chunk " << chunk;
  }
  EXPECT_EQ(backend.paths().gemv + backend.paths().attention_stream, 0);
}

class LongOtherPrompt : public LongPrompt {};

TEST_P(LongOtherPrompt, AtOnceInChunksAndTokenByToken) {
  CpuBackend backend(2);
  const std::vector<float> at_once = run(backend, 0);
  expect_golden(at_once);
  EXPECT_EQ(backend.paths().attention_block, layers());
  const bool experts = load_config(checkpoint_dir(GetParam().name)).layers.back().feed_forward.experts.n > 0;
  EXPECT_LE(max_abs_difference(run(backend, 64), at_once), experts ? kSumOrderTolerance : 0.0)
      << "the kernel of an expert depends on its rows in the chunk";
  expect_golden(run(backend, 64, 290));
  expect_golden(run(backend, 7));
  EXPECT_GT(backend.paths().attention_stream, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, LongOtherPrompt,
                         testing::ValuesIn(long_cases(GoldenList::names(GoldenList::kLongOther),
                                                      {DType::kF32, DType::kBF16, DType::kF16})),
                         long_case_name);
INSTANTIATE_TEST_SUITE_P(Experts, LongOtherPrompt,
                         testing::ValuesIn(long_cases(GoldenList::names(GoldenList::kLongExperts),
                                                      {DType::kF32})),
                         long_case_name);
INSTANTIATE_TEST_SUITE_P(Families, LongPrompt,
                         testing::ValuesIn(long_cases(kLongNames, {DType::kF32, DType::kBF16, DType::kF16})),
                         long_case_name);
INSTANTIATE_TEST_SUITE_P(Families, LongDynamicPrompt,
                         testing::ValuesIn(long_cases(GoldenList::names(GoldenList::kLongDynamic),
                                                      {DType::kF32, DType::kBF16, DType::kF16})),
                         long_case_name);

}  // namespace
}  // namespace lariat::test
