// Results do not depend on the run, the threads or the position.
#include "kernels/reference/reference_backend.h"
#include "tests/engine/generations.h"

namespace lariat::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kLastPosition = 8191;  // checking a million positions takes minutes
#else
constexpr int64_t kLastPosition = 1000000;
#endif

// Small enough for a million positions in float64 scalar code.
ModelSpec tiny_config(int64_t window) {
  ModelSpec config = load_config(checkpoint_dir("llama_gqa"));
  config.vocab_size = 16;
  config.hidden_size = 8;
  config.layers.resize(1);
  config.layers[0].feed_forward.intermediate_size = 8;
  AttentionSpec& attention = config.layers[0].attention;
  attention.head_dim = 8;
  attention.n_heads = attention.n_kv_heads = 1;
  attention.scale = static_cast<float>(1.0 / std::sqrt(8.0));
  attention.sliding_window = window;
  config.rope().head_dim = config.rope().rotary_dim = 8;
  return config;
}

std::vector<std::vector<float>> logits_at(const std::vector<int64_t>& positions, const ModelSpec& config,
                                          Backend& backend) {
  const Model model = random_model(config, backend, DType::kF32, 5);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  std::vector<std::vector<float>> all;
  for (const int64_t position : positions) {
    std::vector<int32_t> tokens;
    for (int64_t p = sequence.length(); p <= position; ++p) {
      tokens.push_back(static_cast<int32_t>(p * p * 31 % config.vocab_size));
    }
    const auto logits = prefill(session, sequence, tokens);
    all.emplace_back(logits.begin(), logits.end());
  }
  return all;
}

TEST(Numbers, FarPositionsEqualFloat64) {
  std::vector<int64_t> positions;
  for (const int64_t p : {0, 511, 8191, 131071, 1000000}) {
    if (p <= kLastPosition) positions.push_back(p);
  }
  const ModelSpec config = tiny_config(/*window=*/4);
  CpuBackend cpu(2);
  ReferenceBackend reference;
  const auto actual = logits_at(positions, config, cpu), expected = logits_at(positions, config, reference);
  for (size_t i = 0; i < positions.size(); ++i) {
    // Angles are rounded once from float64: one f32 layer's error at any position.
    EXPECT_LE(max_abs_difference(actual[i], expected[i]), 2e-6) << "position " << positions[i];
    const auto [low, high] = std::minmax_element(expected[i].begin(), expected[i].end());
    EXPECT_GT(*high - *low, 1e-3) << "identical logits prove nothing";
  }
}

std::vector<int32_t> story(int threads, DType dtype, double temperature) {
  CpuBackend backend(threads);
  const Model model = load_model(demo_dir(), load_config(demo_dir()), backend, dtype);
  SessionOptions session_options;
  if (dtype == DType::kF32) session_options = f32_session();
  Session session(model, backend, session_options);
  Sequence sequence = session.new_sequence();
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 100; ++i) prompt.push_back(5 + i * 7 % 250);
  const SamplerOptions sampler{{.temperature = static_cast<float>(temperature)}, 1.0F, 11};
  return generate(session, sequence, prompt, {.max_new_tokens = 150, .sampler = sampler}).tokens;
}

TEST(Numbers, SeedAndThreadsDetermineTheText) {
  for (const int threads : {1, 2, 3}) {
    EXPECT_EQ(story(threads, DType::kBF16, 1.0), story(threads, DType::kBF16, 1.0)) << threads << " threads";
  }
}

TEST(Numbers, ThreadsDoNotMatterInF32) {
  const auto one = story(1, DType::kF32, 0), drawn = story(1, DType::kF32, 1.0);
  EXPECT_EQ(one.size(), 150U);
  EXPECT_NE(one, drawn);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(story(threads, DType::kF32, 0), one) << threads << " threads";
    EXPECT_EQ(story(threads, DType::kF32, 1.0), drawn) << threads << " threads";
  }
}

}  // namespace
}  // namespace lariat::test
