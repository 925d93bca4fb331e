#include "tests/cuda/cuda_fixture.h"
#include "tests/engine/ahead_cases.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

struct CudaAhead : OnCudaWith<AheadCase> {};

TEST_P(CudaAhead, MatchesThePlainLoop) { check_ahead(*cuda_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, CudaAhead, testing::ValuesIn(ahead_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

using CudaFedBack = OnCuda;

TEST_F(CudaFedBack, SequencesOfABatchEndOneAfterTheOther) { check_batch_ahead(*cuda_); }

// The whole next step is queued, from one record: no launch takes ids as arguments.
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
  int64_t tokens = 0, before = 0;
  generate(session, sequence, std::vector<int32_t>{1, 2, 3}, {.max_new_tokens = kTokens}, [&](int32_t) {
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
