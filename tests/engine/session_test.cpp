#include "engine/runtime/session.h"

#include "engine/text/generate.h"
#include "kernels/error.h"
#include "models/io/json_file.h"
#include "models/text/tokenizer.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

class SessionTest : public testing::Test {
 protected:
  SessionTest() : backend_(2), model_(open_f32(checkpoint_dir("llama_gqa"), backend_)) {}
  CpuBackend backend_;
  Model model_;
};

TEST_F(SessionTest, RefusesTokensOutsideTheVocabularyBeforeAnythingChanges) {
  Session session(model_, backend_, f32_session());
  Sequence sequence = session.new_sequence();
  const std::vector<int32_t> good = {1, 2, 3}, bad = {1, static_cast<int32_t>(model_.spec.vocab_size)};
  prefill(session, sequence, good);
  EXPECT_THROW(prefill(session, sequence, bad), Error);
  EXPECT_THROW(decode(session, sequence, -1), Error);
  EXPECT_EQ(sequence.length(), 3);
}

TEST_F(SessionTest, RefusesPromptsLongerThanTheContext) {
  SessionOptions options = f32_session();
  options.max_ctx = 4;
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  EXPECT_THROW(prefill(session, sequence, std::vector<int32_t>{1, 2, 3, 4, 5}), Error);
  EXPECT_THROW(prefill(session, sequence, std::vector<int32_t>{}), Error);
  prefill(session, sequence, std::vector<int32_t>{1, 2, 3, 4});
  EXPECT_THROW(decode(session, sequence, 1), Error);
}

TEST_F(SessionTest, GenerationStopsWhenTheContextIsFull) {
  SessionOptions options = f32_session();
  options.max_ctx = 6;
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  GenerateOptions generate_options;
  generate_options.max_new_tokens = 100;
  const auto result = generate(session, sequence, std::vector<int32_t>{1, 2, 3}, generate_options,
                               [](int32_t) { return true; });
  EXPECT_EQ(result.tokens.size(), 4U);  // three fed back, and the one that the full context still predicts
  EXPECT_EQ(result.stop_reason, StopReason::kLength);
}

TEST_F(SessionTest, StopsAtEosAndWhenTheCallerSaysSo) {
  Session session(model_, backend_, f32_session());
  GenerateOptions options;
  options.max_new_tokens = 8;
  const auto run = [&](const std::function<bool(int32_t)>& on_token) {
    Sequence sequence = session.new_sequence();
    return generate(session, sequence, std::vector<int32_t>{1, 2, 3}, options, on_token);
  };
  const auto all = run([](int32_t) { return true; });
  ASSERT_EQ(all.tokens.size(), 8U);
  const auto stopped = run([](int32_t) { return false; });
  EXPECT_EQ(stopped.tokens.size(), 1U);
  EXPECT_EQ(stopped.stop_reason, StopReason::kStop);
  options.eos_ids = {all.tokens[0]};
  const auto ended = run([](int32_t) { return true; });
  EXPECT_TRUE(ended.tokens.empty());
  EXPECT_EQ(ended.stop_reason, StopReason::kEos);
}

// The demo checkpoint against transformers (tests/golden/demo).
TEST(Demo, GreedyTokensAreThoseOfTransformers) {
  const nlohmann::json golden = read_json(golden_dir() / "demo" / "greedy_200.json");
  CpuBackend backend(2);
  const Model model = open_f32(demo_dir(), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  const auto prompt = golden["prompt_tokens"].get<std::vector<int32_t>>();
  EXPECT_EQ(Tokenizer::load(demo_dir()).encode(golden["prompt"].get<std::string>(), true), prompt);
  GenerateOptions options;
  options.max_new_tokens = 200;
  const auto result = generate(session, sequence, prompt, options, [](int32_t) { return true; });
  EXPECT_EQ(result.tokens, golden["tokens"].get<std::vector<int32_t>>());
}

}  // namespace
}  // namespace lariat::test
