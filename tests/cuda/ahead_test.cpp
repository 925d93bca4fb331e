// Decode steps that are queued before the host knows their tokens.
#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/ahead_cases.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

struct CudaAhead : OnCudaWith<AheadCase> {};

TEST_P(CudaAhead, LeavesWhatALoopWithoutItLeaves) { check_ahead(*cuda_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaAhead, testing::ValuesIn(ahead_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

using CudaFedBack = OnCuda;

TEST_F(CudaFedBack, SequencesOfABatchEndOneAfterTheOther) { check_batch_ahead(*cuda_); }

// More rows than a launch draws, some of them without a largest logit: the ids of the reference, and embed
// reads the same, in any order, while the host has none of them.
TEST_F(CudaFedBack, EmbedReadsWhatWasDrawn) {
  constexpr int64_t kRows = 20, kCols = 33, kDim = 6;
  Rng rng(31);
  std::vector<float> values = rng.normals(kRows * kCols, 3.0F);
  std::fill_n(values.begin() + 2 * kCols, kCols, std::nanf(""));
  std::fill_n(values.begin() + 18 * kCols, kCols, -INFINITY);
  values[5 * kCols + 7] = INFINITY;
  std::vector<double> uniforms(kRows);
  for (double& u : uniforms) u = rng.uniform();
  const std::vector<float> table = rng.normals(kCols * kDim);
  const Tensor logits(*cuda_, values, kRows, kCols), host_logits(reference_, values, kRows, kCols);
  const Tensor weights(*cuda_, table, kCols, kDim), out(*cuda_, kRows, kDim);
  std::vector<int32_t> order;
  for (size_t row = 0; row < kRows; ++row) order.push_back(drawn_token((row * 7 + 3) % kRows));
  order[4] = 9;  // which was not drawn
  for (const Sampling& how : {Sampling{}, Sampling{.temperature = 0.8F}, Sampling{}}) {
    std::vector<int32_t> expected(kRows), ids(kRows, -77);
    reference_.draw(host_logits.view(), how, uniforms);
    reference_.read_drawn(expected);
    EXPECT_LT(expected[5], 0);
    cuda_->draw(logits.view(), how, uniforms);
    cuda_->embed(order, weights.view(), 2.0F, out.view());
    cuda_->read_drawn(ids);
    EXPECT_EQ(ids, expected);
    std::vector<float> rows;
    for (const int32_t token : order) {
      const int32_t id = token < 0 ? token_of(expected[static_cast<size_t>(-1 - token)]) : token;
      for (int64_t i = 0; i < kDim; ++i) rows.push_back(2.0F * table[static_cast<size_t>(id * kDim + i)]);
    }
    EXPECT_EQ(out.values(), rows);
  }
}

// When a token comes, all of the step behind it is on its way. The record of a step serves those that run
// ahead: no launch of it is given the ids.
TEST_F(CudaFedBack, TheNextStepIsQueuedWhenATokenComes) {
  constexpr int64_t kTokens = 24;
  const auto& device = dynamic_cast<const CudaBackend&>(*cuda_);
  const auto steps = [&] {
    const CudaBackend::StepCounts counts = device.step_counts();
    return counts.direct + counts.recorded + counts.replayed;
  };
  const Model model = open_f32(checkpoint_dir("llama_gqa"), *cuda_);
  Session session(model, *cuda_, f32_session());
  Sequence sequence = session.new_sequence();
  GenerateOptions options;
  options.max_new_tokens = kTokens;
  int64_t tokens = 0, before = 0;
  generate(session, sequence, std::vector<int32_t>{1, 2, 3}, options, [&](int32_t) {
    if (++tokens == 1) {
      before = steps();
    } else {
      EXPECT_EQ(steps() - before, std::min(tokens, kTokens - 1)) << "at token " << tokens;
    }
    return true;
  });
  EXPECT_EQ(tokens, kTokens);
  EXPECT_EQ(device.step_counts().recorded, 1);
  EXPECT_EQ(device.step_counts().replayed, kTokens - 3);
}

}  // namespace
}  // namespace lariat::test
