#include "engine/runtime/session.h"

#include "kernels/error.h"
#include "models/io/json_file.h"
#include "models/positions/parse_position_method.h"
#include "models/text/tokenizer.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/generations.h"

namespace lariat::test {
namespace {

class SessionTest : public testing::Test {
 protected:
  SessionTest() : backend_(2), model_(open_f32(checkpoint_dir("llama_gqa"), backend_)) {}
  CpuBackend backend_;
  Model model_;
};

TEST_F(SessionTest, RefusesInvalidTokensBeforeAnyChange) {
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
  const auto result = generate(session, sequence, std::vector<int32_t>{1, 2, 3}, {.max_new_tokens = 100});
  EXPECT_EQ(result.tokens.size(), 4U);  // three fed back, one predicted at the full context
  EXPECT_EQ(result.stop_reason, StopReason::kLength);
}

TEST_F(SessionTest, StopsAtEosOrOnRequest) {
  Session session(model_, backend_, f32_session());
  GenerateOptions options{.max_new_tokens = 8};
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

TEST(Demo, GreedyTokensAreThoseOfTransformers) {
  const nlohmann::json golden = read_json(golden_dir() / "demo" / "greedy_200.json");
  CpuBackend backend(2);
  const Model model = open_f32(demo_dir(), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  const auto prompt = golden["prompt_tokens"].get<std::vector<int32_t>>();
  EXPECT_EQ(Tokenizer::load(demo_dir()).encode(golden["prompt"].get<std::string>(), true), prompt);
  const auto result = generate(session, sequence, prompt, {.max_new_tokens = 200});
  EXPECT_EQ(result.tokens, golden["tokens"].get<std::vector<int32_t>>());
}

TEST_F(SessionTest, OnePassPerChunk) {
  SessionOptions options = f32_session();
  options.prefill_chunk = 8;
  Session session(model_, backend_, options);
  const std::vector<int32_t> tokens(5, 3);
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(session.new_sequence());
  std::vector<Prompt> prompts, next;
  for (Sequence& sequence : sequences) prompts.push_back({&sequence, tokens});
  std::vector<int64_t> done;
  const auto progress = [&](int64_t n) { done.push_back(n); };
  session.forward(prompts, {}, progress);
  EXPECT_EQ(done, (std::vector<int64_t>{8, 15}));
  // A decode step is one pass for any number of sequences.
  for (Sequence& sequence : sequences) next.push_back({&sequence, std::span(tokens).first(1)});
  session.forward(next, {}, progress);
  EXPECT_EQ(done.back(), 3);
}

// The new stretch moves second keys.
TEST_F(SessionTest, ATokenThatStretchesCannotBeTakenBack) {
  SessionOptions options = f32_session();
  options.positions = parse_position_method("self-extend/group=auto/window=16", 64, 0);
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  Sequence* const one = &sequence;
  prefill(session, sequence, std::vector<int32_t>(63, 3));
  EXPECT_TRUE(session.can_take_back({&one, 1}));
  decode(session, sequence, 3);
  EXPECT_FALSE(session.can_take_back({&one, 1}));
}

TEST_F(SessionTest, NoTokenAfterAFullContextCanBeTakenBack) {
  SessionOptions options = f32_session();
  options.max_ctx = 4;
  Session session(model_, backend_, options);
  Sequence sequence = session.new_sequence();
  Sequence* const one = &sequence;
  prefill(session, sequence, std::vector<int32_t>{1, 2, 3});
  EXPECT_TRUE(session.can_take_back({&one, 1}));
  decode(session, sequence, 4);
  EXPECT_FALSE(session.can_take_back({&one, 1}));
}

TEST_F(SessionTest, ComputesOnlyRequestedLogits) {
  Session session(model_, backend_, f32_session());
  Sequence sequence = session.new_sequence();
  const std::vector<int32_t> tokens{1, 2, 3};
  int slices = 0;
  const auto count = [&](size_t, int64_t, const Matrix&) { ++slices; };
  EXPECT_FALSE(forward(session, {&sequence, tokens, 3}, count));
  EXPECT_EQ(slices, 0);
  EXPECT_TRUE(forward(session, {&sequence, tokens, 1}, count));
  EXPECT_EQ(slices, 1);
}

// A session reports each finding once.
TEST_F(SessionTest, ReportsNonFiniteAndBeyondF16Values) {
  struct Broken : ForwardingBackend {
    using ForwardingBackend::ForwardingBackend;
    void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) override {
      ForwardingBackend::linear(x, weight, epilogue, out);
      if (out && out.cols == vocab) out.f32(out.rows - 1)[0] = NAN;
    }
    Saturation saturated() override { return found; }
    int64_t vocab = 0;
    Saturation found;
  };
  Broken broken(backend_);
  broken.vocab = model_.spec.vocab_size;
  int not_finite = 0;
  std::vector<int64_t> values;
  SessionOptions options;
  options.on_not_finite = [&] { ++not_finite; };
  options.on_saturated = [&](const Saturation& found) { values.push_back(found.values); };
  Session session(model_, broken, options);
  for (const int64_t found : {0, 1, 2}) {
    broken.found.values = found;
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::vector<int32_t>{1, 2, 3});
  }
  EXPECT_EQ(not_finite, 1);
  EXPECT_EQ(values, std::vector<int64_t>{1});
}

}  // namespace
}  // namespace lariat::test
