#include <fmt/core.h>

#include "engine/rope_options.h"
#include "models/io/json_file.h"
#include "tests/engine/losses_by_hand.h"

namespace lariat::test {
namespace {

// One bucket per token; position 0 has no loss.
std::vector<double> losses_by_position(const PerplexityResult& result) {
  std::vector<double> losses;
  for (const auto& bucket : result.positions) losses.push_back(bucket.nll);
  return losses;
}

double largest_gap(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double gap = 0;
  for (size_t i = 0; i < a.size(); ++i) gap = std::max(gap, std::abs(a[i] - b[i]));
  return gap;
}

class GrowingTest : public testing::Test {
 protected:
  GrowingTest()
      : backend_(2),
        model_(open_f32(checkpoint_dir("llama_gqa"), backend_)),
        tokens_(random_text(512, model_.spec.vocab_size, 5)) {}

  SessionOptions options_for(const std::string& scaling, int steps = 4, bool stale = false) const {
    RopeOptions rope;
    rope.scaling = scaling;
    if (scaling == "yarn" || scaling == "dynamic") rope.factor = 2.0;
    SessionOptions options = f32_session();
    options.rope = resolve_rope(model_.spec.rope(), rope);
    options.rope_steps = steps;
    options.stale_cache = stale;
    return options;
  }

  std::vector<double> grown(const SessionOptions& session_options, int64_t ctx, int64_t step) {
    Session session(model_, backend_, session_options);
    TokenSource text(tokens_);
    PerplexityOptions options{
        .ctx = {ctx}, .step = step, .method = PerplexityMethod::kGrowing, .buckets = static_cast<int>(ctx)};
    return losses_by_position(measure_perplexity(session, text, options).front());
  }

  CpuBackend backend_;
  const Model model_;
  std::vector<int32_t> tokens_;
};

// Eight scale steps, at other lengths than the evaluation steps.
TEST_F(GrowingTest, EveryStepSizeEqualsDecoding) {
  constexpr int64_t kCtx = 256;
  const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
  for (const bool stale : {false, true}) {
    for (const char* scaling : {"none", "yarn", "dynamic", "dynamic-yarn"}) {
      SCOPED_TRACE(fmt::format("{} stale {}", scaling, stale));
      const SessionOptions options = options_for(scaling, 4, stale);
      Session session(model_, backend_, options);
      const auto logits = all_logits(session, std::span(tokens_).first(kCtx), 1);
      std::vector<double> expected = {0};
      for (size_t i = 1; i < kCtx; ++i)
        expected.push_back(loss_by_hand(std::span(logits).subspan((i - 1) * vocab, vocab), tokens_[i]));
      for (const int64_t step : {1, 7, 32, 100, 1000})
        EXPECT_LT(largest_gap(grown(options, kCtx, step), expected), 1e-4) << "step " << step;
    }
  }
}

TEST_F(GrowingTest, AnExactScaleIsTakenAtTheStepsEnd) {
  const SessionOptions options = options_for("dynamic", 0);
  EXPECT_GT(largest_gap(grown(options, 256, 32), grown(options, 256, 1)), 1e-3);
}

TEST_F(GrowingTest, EqualsTheFloat64Formulas) {
  const auto golden = read_json(golden_dir() / "growing.json");
  tokens_ = golden["tokens"].get<std::vector<int32_t>>();
  ASSERT_EQ(golden["original_ctx"], model_.spec.rope().original_ctx);
  std::vector<double> means;
  for (const auto& item : golden["cases"]) {
    const bool stale = item["stale"].get<bool>();
    const SessionOptions options =
        options_for(item["scaling"].get<std::string>(), golden["steps_per_octave"].get<int>(), stale);
    auto expected = item["losses"].get<std::vector<double>>();
    expected.insert(expected.begin(), 0.0);
    const auto size = static_cast<int64_t>(tokens_.size());
    const double gap = largest_gap(grown(options, size, 32), expected);
    EXPECT_LT(gap, 2e-4) << item["scaling"] << " stale " << stale;
    means.push_back(expected.back());
  }
  ASSERT_EQ(means.size(), 4U);
  EXPECT_GT(std::abs(means[0] - means[1]), 1e-2);
}

TEST_F(GrowingTest, StretchesAreSeparateContexts) {
  const SessionOptions session_options = options_for("dynamic-yarn");
  const auto measure = [&](std::vector<int32_t> tokens, int64_t max_tokens, const std::vector<int32_t>& bos) {
    Session session(model_, backend_, session_options);
    TokenSource text(std::move(tokens), max_tokens);
    const PerplexityOptions options{
        .ctx = {64, 128}, .step = 16, .method = PerplexityMethod::kGrowing, .bos = bos, .buckets = 8};
    return measure_perplexity(session, text, options);
  };
  const int64_t holds = 127;
  const auto both = measure(tokens_, 2 * holds + 50, {1});
  const auto one = measure(tokens_, 0, {1}),
             two = measure({tokens_.begin() + holds, tokens_.end()}, holds, {1});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(one[i].tokens, one[i].ctx - 1);
    EXPECT_EQ(both[i].tokens, 2 * (both[i].ctx - 1));
    EXPECT_NEAR(both[i].nll, one[i].nll + two[i].nll, 1e-4 * both[i].nll);
    EXPECT_TRUE(both[i].complete);
  }
  EXPECT_EQ(measure(tokens_, 0, {})[1].tokens, 127);
  // Tokens that start a text are prefilled and not scored.
  std::vector<int32_t> begun = {1, 5, 7};
  begun.insert(begun.end(), tokens_.begin(), tokens_.end());
  const auto behind = measure(tokens_, 0, {1, 5, 7})[1], as_text = measure(begun, 0, {})[1];
  EXPECT_EQ(behind.tokens, 125);
  for (size_t i = 0; i < 125; ++i) EXPECT_EQ(behind.losses[i], as_text.losses[i + 3]) << i;
}

TEST_F(GrowingTest, InterruptionKeepsScoredTokens) {
  Session session(model_, backend_, options_for("dynamic"));
  TokenSource text(tokens_);
  std::atomic<bool> interrupted{false};
  const PerplexityOptions options{
      .ctx = {300}, .step = 10, .method = PerplexityMethod::kGrowing, .interrupted = &interrupted};
  const auto results = measure_perplexity(session, text, options,
                                          [&](const PerplexityProgress& at) { interrupted = at.done >= 50; });
  EXPECT_FALSE(results[0].complete);
  EXPECT_EQ(results[0].tokens, 50);
}

}  // namespace
}  // namespace lariat::test
