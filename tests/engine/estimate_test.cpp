#include "engine/eval/estimate.h"

#include <cmath>

#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

TEST(Estimate, CountsPassesTokensPositionsAndLogits) {
  EXPECT_DOUBLE_EQ(seconds_for({.pass = 1}, 0, 1024, 256), 4);
  EXPECT_DOUBLE_EQ(seconds_for({.pass = 1}, 0, 1024, 0), 1);
  EXPECT_DOUBLE_EQ(seconds_for({.token = 1}, 100, 300, 50), 200);
  EXPECT_DOUBLE_EQ(seconds_for({.position = 1}, 100, 300, 50), 200 * 200);
  EXPECT_DOUBLE_EQ(seconds_for({.logits = 2}, 0, 10, 5, 3), 6);
  EXPECT_EQ(seconds_for({1, 1, 1, 1}, 7, 7, 1), 0);
}

// Of whatever machine: finite, and a context that is read costs something. Short ones are measured too.
TEST(Estimate, AMachineIsMeasured) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  SessionOptions options = f32_session();
  RopeOptions dynamic;
  dynamic.scaling = "dynamic";
  dynamic.factor = 2.0;
  options.rope = resolve_rope(model.spec.rope, dynamic);
  Session session(model, backend, options);
  for (const int64_t longest : {1, 64, 1024}) {
    const WorkRate rate = measure_rate(session, longest);
    for (const double each : {rate.pass, rate.token, rate.position, rate.logits})
      EXPECT_TRUE(std::isfinite(each) && each >= 0) << each;
    EXPECT_GT(seconds_for(rate, 0, 512, 256), 0);
  }
  EXPECT_EQ(session.pool().pages(), 0);
}

TEST(Estimate, ATrialIsTakenApart) {
  const WorkRate rate =
      rate_of({.tokens = 100, .depth = 1000, .first = 3.0, .scored = 4.0, .deep = 8.0, .one = 1.0});
  EXPECT_DOUBLE_EQ(rate.token, 0.02);
  EXPECT_DOUBLE_EQ(rate.logits, 0.01);
  EXPECT_DOUBLE_EQ(rate.position, 5.0 / (100 * 1000));
  EXPECT_DOUBLE_EQ(rate.pass, 0.97);
}

TEST(Estimate, ATrialOnABusyMachineIsNotFree) {
  // One of the four was held up; the others took what they take.
  for (const Trial& trial : {Trial{1, 0, 1.0, 9.0, 1.0, 1.0}, Trial{1, 0, 9.0, 9.0, 9.0, 1.0},
                             Trial{1, 0, 1.0, 1.0, 9.0, 1.0}, Trial{1, 0, 1.0, 1.0, 1.0, 9.0}}) {
    const WorkRate rate = rate_of(trial);
    for (const double each : {rate.pass, rate.token, rate.position, rate.logits}) EXPECT_GE(each, 0);
    EXPECT_GE(seconds_for(rate, 0, 512, 256), 1.0);
  }
}

TEST(Estimate, IsSpokenInFewWords) {
  EXPECT_EQ(spoken_duration(0.2), "1 s");
  EXPECT_EQ(spoken_duration(40), "40 s");
  EXPECT_EQ(spoken_duration(200), "3 min");
  EXPECT_EQ(spoken_duration(12000), "3 h 20 min");
  EXPECT_EQ(spoken_work(1000, 40, 3 << 20),
            "1000 tokens through the model: about 40 s, up to 3 MiB of KV cache");
}

}  // namespace
}  // namespace lariat::test
