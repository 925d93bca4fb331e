#include "engine/eval/measure/perplexity.h"

#include "engine/rope_options.h"
#include "kernels/reference/reference_backend.h"
#include "models/positions/parse_position_method.h"
#include "tests/engine/losses_by_hand.h"

namespace lariat::test {
namespace {

void expect_equal(const PerplexityResult& result, const std::vector<double>& losses) {
  const auto n = static_cast<double>(losses.size());
  double sum = 0, squares = 0;
  for (const double loss : losses) {
    sum += loss;
    squares += loss * loss;
  }
  EXPECT_EQ(result.tokens, std::ssize(losses));
  EXPECT_NEAR(result.nll / sum, 1.0, 1e-5);
  const double mean = sum / n, ppl = std::exp(mean);
  EXPECT_NEAR(result.ppl() / ppl, 1.0, 1e-4);
  EXPECT_NEAR(result.standard_error() / (ppl * std::sqrt((squares / n - mean * mean) / (n - 1))), 1.0, 1e-3);
  double nll = 0;
  int64_t tokens = 0;
  for (const auto& bucket : result.positions) {
    nll += bucket.nll;
    tokens += bucket.tokens;
  }
  EXPECT_EQ(tokens, result.tokens);
  EXPECT_NEAR(nll, result.nll, 1e-9 * std::abs(nll));
}

struct Case {
  std::string scaling;
  std::vector<int32_t> bos;
  int64_t text, prefill_chunk;
};

class PerplexityTest : public testing::TestWithParam<Case> {};

TEST_P(PerplexityTest, EqualsOnePassPerWindowInFloat64) {
  const auto& [scaling, bos, length, prefill_chunk] = GetParam();
  const auto dir = checkpoint_dir("llama_gqa");
  CpuBackend backend(1);
  ReferenceBackend reference;
  const Model model = open_f32(dir, backend), reference_model = open_f32(dir, reference);
  RopeOptions rope{.scaling = scaling, .original_ctx = 32};
  if (scaling != "none") rope.factor = 2.0;
  SessionOptions session_options = f32_session(), at_once = f32_session();
  session_options.rope = at_once.rope = resolve_rope(model.spec.rope(), rope);
  session_options.rope_steps = at_once.rope_steps = 0;
  session_options.prefill_chunk = prefill_chunk;
  const auto text = random_text(length, model.spec.vocab_size, 7);
  PerplexityOptions options{.ctx = {24, 64, 16}, .stride = 20};  // longer than the shortest window
  options.bos = bos;
  for (const PerplexityMethod method :
       {PerplexityMethod::kSliding, PerplexityMethod::kChunks, PerplexityMethod::kAnchored}) {
    options.method = method;
    if (method == PerplexityMethod::kChunks) options.ctx = {16, 32, 25};
    if (method == PerplexityMethod::kAnchored) options.step = 11;  // does not divide 32 or 16
    Session session(model, backend, session_options);
    TokenSource source(text);
    const auto results = measure_perplexity(session, source, options);
    ASSERT_EQ(results.size(), 3U);
    for (const auto& result : results) {
      SCOPED_TRACE(result.ctx);
      std::vector<double> losses;
      for (const HandWindow& window : windows_by_hand(text, options, result.ctx)) {
        size_t i = window.first;
        for (const auto& row : window.log_probabilities(reference_model, reference, at_once))
          losses.push_back(-row[static_cast<size_t>(window.tokens[i++])]);
      }
      expect_equal(result, losses);
      EXPECT_EQ(result.stride, method == PerplexityMethod::kSliding
                                   ? std::min<int64_t>(20, result.ctx - std::max<int64_t>(std::ssize(bos), 1))
                                   : 0);
    }
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return test_name(info.param.scaling + "_" + std::to_string(info.param.bos.size()) + "bos_" +
                   std::to_string(info.param.text) + "_" + std::to_string(info.param.prefill_chunk));
}

INSTANTIATE_TEST_SUITE_P(All, PerplexityTest,
                         testing::Values(Case{"none", {1}, 143, 512}, Case{"none", {}, 144, 50},
                                         Case{"none", {1, 5}, 142, 60}, Case{"yarn", {1}, 140, 0},
                                         Case{"dynamic", {1}, 130, 40}, Case{"dynamic-yarn", {}, 131, 512},
                                         Case{"dynamic", {1, 5, 7}, 131, 512}),
                         case_name);

// Windows of different lengths do not share a prefix.
TEST(AnchoredPerplexity, HasTheGroupOfEachWindow) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  SessionOptions session_options = f32_session();
  session_options.positions = parse_position_method("jet-long/window=20", 64, 0);
  const auto text = random_text(210, model.spec.vocab_size, 7);
  const PerplexityOptions options{
      .ctx = {200}, .step = 50, .method = PerplexityMethod::kAnchored, .bos = {1}};
  Session session(model, backend, session_options);
  const auto result = measure_perplexity(session, TokenSource(text), options)[0];
  std::vector<double> losses;
  for (const HandWindow& window : windows_by_hand(text, options, 200)) {
    size_t i = window.first;
    for (const auto& row : window.log_probabilities(model, backend, session_options))
      losses.push_back(-row[static_cast<size_t>(window.tokens[i++])]);
  }
  expect_equal(result, losses);
  ASSERT_EQ(result.positions.size(), 4U);
  for (const PositionBucket& bucket : result.positions) EXPECT_EQ(bucket.tokens, bucket.from == 0 ? 49 : 50);
  PerplexityOptions wrong = options;
  for (const int64_t step : {1, 201}) {
    wrong.step = step;
    EXPECT_NE(error_of([&] { measure_perplexity(session, TokenSource(text), wrong); }), "") << step;
  }
}

TEST(PerplexityInterrupted, KeepsWhatWasMeasured) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  Session session(model, backend, f32_session());
  TokenSource source(random_text(4000, model.spec.vocab_size, 7));
  std::atomic<bool> interrupted{false};
  const PerplexityOptions options{.ctx = {600}, .bos = {1}, .interrupted = &interrupted};
  int calls = 0;
  const auto results = measure_perplexity(session, source, options,
                                          [&](const PerplexityProgress&) { interrupted = ++calls == 2; });
  EXPECT_FALSE(results[0].complete);
  EXPECT_EQ(results[0].tokens, 599 + 256);
  EXPECT_TRUE(std::isfinite(results[0].ppl()));
}

}  // namespace
}  // namespace lariat::test
