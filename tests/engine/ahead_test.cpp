// Steps queued before the previous token is known, on a CPU backend that claims to be asynchronous.
#include "tests/engine/ahead_cases.h"

namespace lariat::test {
namespace {

class OnPretending : public testing::Test {
 protected:
  CpuBackend cpu_{1};
};

struct AheadOf : OnPretending, testing::WithParamInterface<AheadCase> {};
using Ahead = OnPretending;

TEST_P(AheadOf, MatchesThePlainLoop) { check_ahead(cpu_, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, AheadOf, testing::ValuesIn(ahead_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(Ahead, SequencesOfABatchEndOneAfterTheOther) { check_batch_ahead(cpu_); }

// A step that may be taken back must not copy shared pages; M-RoPE positions advance when a token is fed.
TEST_F(Ahead, StepsAheadNeedUnsharedPages) {
  const Model model = open_f32(checkpoint_dir("llama_gqa"), cpu_);
  Session session(model, cpu_, f32_session());
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, std::vector<int32_t>(10, 3));
  Sequence* one = &sequence;
  EXPECT_TRUE(session.can_take_back({&one, 1}));
  {
    const Sequence fork = session.fork(sequence, 10);
    EXPECT_FALSE(session.can_take_back({&one, 1}));
  }
  EXPECT_TRUE(session.can_take_back({&one, 1}));
  const Model placing = open_f32(checkpoint_dir("qwen2_vl"), cpu_);
  Session placed_session(placing, cpu_, f32_session());
  Sequence placed = placed_session.new_sequence();
  placed.set_mrope_positions(std::vector<int32_t>{0, 0, 0, 1, 1, 1});
  prefill(placed_session, placed, std::vector<int32_t>{3, 4});
  one = &placed;
  EXPECT_FALSE(placed_session.can_take_back({&one, 1}));
}

// The step that ran ahead is taken back.
TEST_F(Ahead, NonFiniteLogitsAreAnError) {
  class Broken : public AheadBackend {
   public:
    using AheadBackend::AheadBackend;
    void draw(const Matrix& logits, std::span<const Sampling> how,
              std::span<const double> uniforms) override {
      if (++draws_ == 4) logits.f32()[5] = INFINITY;
      AheadBackend::draw(logits, how, uniforms);
    }
    int draws_ = 0;
  };
  Broken broken(cpu_);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), broken);
  Session session(model, broken, f32_session());
  Sequence sequence = session.new_sequence();
  const auto run = [&] { generate(session, sequence, std::vector<int32_t>{1, 2, 3}, {}); };
  EXPECT_THROW(run(), Error);
  EXPECT_EQ(broken.steps_ahead(), 3);
  EXPECT_EQ(sequence.length(), 6);
}

}  // namespace
}  // namespace lariat::test
