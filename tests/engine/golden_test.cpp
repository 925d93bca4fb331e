// Every family vs transformers (tools/lab/golden/checkpoints.py).
#include <algorithm>

#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/generations.h"

namespace lariat::test {
namespace {

constexpr double kLogitsTolerance = 1e-4;  // float32 transformers: up to 2.4e-5 from float64

class GoldenCheckpoint : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path dir() const { return checkpoint_dir(GetParam()); }
  Tensors golden() const { return open_safetensors_file(dir() / "golden.safetensors"); }

  void expect_logits(Backend& backend, const SessionOptions& options) const {
    const Tensors expected = golden();
    const std::vector<int32_t> tokens = int_tensor(expected, "tokens");
    const Model model = open_f32(dir(), backend);
    Session session(model, backend, options);
    EXPECT_LE(
        max_abs_difference(all_logits(session, tokens, tokens.size()), float_tensor(expected, "logits")),
        kLogitsTolerance);
  }
};

TEST_P(GoldenCheckpoint, LogitsOnTheCpu) {
  for (const int threads : {1, 2}) {
    CpuBackend backend(threads);
    expect_logits(backend, f32_session());
  }
}

TEST_P(GoldenCheckpoint, LogitsOnTheReference) {
  ReferenceBackend backend;
  expect_logits(backend, f32_session());
}

// Splits are bitwise identical within the same kernels (see also LongPrompt), except for experts, whose rows
// a chunk divides.
TEST_P(GoldenCheckpoint, TheSplitDoesNotMatter) {
  CpuBackend backend(2);
  const std::vector<int32_t> tokens = int_tensor(golden(), "tokens");
  const Model model = open_f32(dir(), backend);
  SessionOptions options = f32_session();
  options.prefill_chunk = 0;
  Session one_shot(model, backend, options);
  const std::vector<float> expected = all_logits(one_shot, tokens, tokens.size());
  const bool experts = model.spec.layers.back().feed_forward.experts.n > 0;
  for (const int64_t chunk : {1, 7, 32}) {
    options.prefill_chunk = chunk;
    Session session(model, backend, options);
    EXPECT_LE(max_abs_difference(all_logits(session, tokens, tokens.size()), expected),
              chunk == 32 && !experts ? 0.0 : kSumOrderTolerance)
        << "chunk " << chunk;
  }
  EXPECT_LE(max_abs_difference(all_logits(one_shot, tokens, 5), expected), kSumOrderTolerance)
      << "decoded from 5";
}

TEST_P(GoldenCheckpoint, GreedyTokens) {
  CpuBackend backend(2);
  const Tensors expected = golden();
  std::vector<int32_t> prompt = int_tensor(expected, "tokens");
  prompt.resize(8);
  const Model model = open_f32(dir(), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  const std::vector<int32_t> greedy = int_tensor(expected, "greedy");
  const Generation result = generate(session, sequence, prompt, {.max_new_tokens = std::ssize(greedy)});
  EXPECT_EQ(result.tokens, greedy);
  EXPECT_EQ(result.stop_reason, StopReason::kLength);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenCheckpoint, testing::ValuesIn(GoldenList::names()),
                         [](const auto& test) { return std::string(test.param); });

// M-RoPE positions reach 2,200, where transformers' float32 angles are off by up to 1e-4; lariat's are exact.
constexpr double kPlacedTolerance = 3e-4;

class GoldenPositions : public testing::TestWithParam<const char*> {};

TEST_P(GoldenPositions, LogitsHoweverThePromptIsSplit) {
  CpuBackend backend(2);
  const Tensors golden = open_safetensors_file(checkpoint_dir(GetParam()) / "mrope.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens"), rows = int_tensor(golden, "positions");
  const std::vector<float> expected = float_tensor(golden, "logits");
  std::vector<int32_t> positions;
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (size_t axis = 0; axis < 3; ++axis) positions.push_back(rows[axis * tokens.size() + i]);
  }
  const Model model = open_f32(checkpoint_dir(GetParam()), backend);
  for (const size_t prefilled : {tokens.size(), size_t{7}}) {
    Session session(model, backend, f32_session());
    EXPECT_LE(max_abs_difference(all_logits(session, tokens, prefilled, positions), expected),
              kPlacedTolerance);
  }
  Session session(model, backend, f32_session());
  EXPECT_GT(max_abs_difference(all_logits(session, tokens, tokens.size()), expected), 100 * kLogitsTolerance)
      << "the positions must matter";
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenPositions,
                         testing::Values("qwen2_vl", "qwen25_vl", "qwen3_vl", "qwen3_vl_moe"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Positions, OnlyWhereTheModelHasThree) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  EXPECT_THROW(sequence.set_mrope_positions(std::vector<int32_t>{0, 0, 0}), Error);
  const Model images = open_f32(checkpoint_dir("qwen2_vl"), backend);
  Session other(images, backend, f32_session());
  Sequence text = other.new_sequence();
  EXPECT_THROW(text.set_mrope_positions(std::vector<int32_t>{0, -1, 0}), Error);
}

// Truncation forgets positions past the end.
TEST(Positions, ContinueFromTheLargest) {
  SequencePositions positions;
  std::vector<double> memory;
  EXPECT_TRUE(positions.of(0, 0, 5, memory).empty());
  EXPECT_EQ(positions.rope_length(5), 5);
  positions.set_mrope(std::vector<int32_t>{2, 2, 2, 2, 2, 7}, 2);
  const auto all = positions.of(0, 0, 5, memory);
  EXPECT_EQ(std::vector<double>(all.begin(), all.end()),
            (std::vector<double>{0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 7, 8, 8, 8}));
  EXPECT_EQ(positions.rope_length(5), 9);
  const auto widths = [&](int64_t length) {
    std::vector<double> thirds;
    const auto of = positions.of(0, 0, length, memory);
    for (size_t i = 2; i < of.size(); i += 3) thirds.push_back(of[i]);
    return thirds;
  };
  positions.set_mrope(std::vector<int32_t>{3, 3, 5}, 3);
  EXPECT_EQ(widths(5), (std::vector<double>{0, 1, 2, 5, 6}));
  positions.truncate(3);
  EXPECT_EQ(widths(4), (std::vector<double>{0, 1, 2, 3}));
}

// Re-decoded tokens and tokens of a fork keep their positions.
TEST(Positions, StayWithTheirTokens) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("qwen2_vl"), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  sequence.set_mrope_positions(std::vector<int32_t>{0, 0, 0, 5, 5, 5, 9, 9, 9});
  prefill(session, sequence, std::vector<int32_t>{3, 4, 5});
  EXPECT_EQ(session.fork(sequence, 2).positions().mrope().size(), 6U);
  EXPECT_EQ(session.fork(sequence, 3).positions().mrope().size(), 9U);
  sequence.rewind(1);
  EXPECT_EQ(sequence.positions().mrope().size(), 9U);
  sequence.truncate(1);
  EXPECT_EQ(sequence.positions().mrope().size(), 9U);
  sequence.truncate(0);
  EXPECT_TRUE(sequence.positions().mrope().empty());
}

TEST(Alibi, HasNoRope) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("bloom"), backend);
  SessionOptions options = f32_session();
  options.rope = model.spec.rope();
  options.rope->type = RopeType::kDynamicYarn;
  EXPECT_THROW(Session(model, backend, options), Error);
}

// transformers rounds every intermediate result, lariat only the inputs of matrix products.
TEST(GoldenBf16, NoFurtherFromF32ThanTransformers) {
  CpuBackend backend(2);
  const auto dir = checkpoint_dir("llama_bf16");
  const Tensors expected = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(expected, "tokens");
  const Model model = load_model(dir, load_config(dir), backend, std::nullopt);
  ASSERT_EQ(model.product_dtype(), DType::kBF16);
  SessionOptions options;
  options.v_dtype = DType::kBF16;
  Session session(model, backend, options);
  const std::vector<float> exact = float_tensor(expected, "logits");
  EXPECT_LE(max_abs_difference(all_logits(session, tokens, tokens.size()), exact),
            max_abs_difference(float_tensor(expected, "logits_bf16"), exact));
}

}  // namespace
}  // namespace lariat::test
