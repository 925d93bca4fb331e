#include "engine/eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/rope_options.h"
#include "kernels/reference/reference_backend.h"
#include "models/io/json_file.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab) {
  std::mt19937 random(7);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (auto& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

struct Sums {
  int64_t tokens = 0;
  double nll = 0, squares = 0;
};

// The definitions once more, one forward pass per window on the float64 backend, nothing shared.
class Oracle {
 public:
  Oracle(const std::filesystem::path& dir, const RopeScaling& rope, std::vector<int32_t> text,
         std::optional<int32_t> bos)
      : model_(open_f32(dir, backend_)), text_(std::move(text)), bos_(bos), options_(f32_session()) {
    options_.rope = rope;
    options_.rope_steps = 0;
  }

  Sums sliding(int64_t ctx, int64_t stride) {
    Sums sums;
    const auto n = static_cast<int64_t>(text_.size());
    const int64_t holds = bos_ ? ctx - 1 : ctx, step = std::min(stride, ctx - 1);
    int64_t scored = bos_ ? 0 : 1;
    for (int64_t begin = 0;; begin += step) {
      const int64_t end = std::min(begin + holds, n);
      std::vector<int32_t> window;
      if (bos_) window.push_back(*bos_);
      window.insert(window.end(), text_.begin() + begin, text_.begin() + end);
      add(window, scored - begin + (bos_ ? 1 : 0), sums);
      scored = end;
      if (end == n) return sums;
    }
  }

  Sums chunks(int64_t ctx) {
    Sums sums;
    std::vector<int32_t> all;
    if (bos_) all.push_back(*bos_);
    all.insert(all.end(), text_.begin(), text_.end());
    for (int64_t begin = 0; begin + ctx <= static_cast<int64_t>(all.size()); begin += ctx) {
      std::vector<int32_t> window(all.begin() + begin, all.begin() + begin + ctx);
      if (bos_) window[0] = *bos_;
      add(window, ctx / 2 + 1, sums);
    }
    return sums;
  }

 private:
  // Scores window[first], ...
  void add(const std::vector<int32_t>& window, int64_t first, Sums& sums) {
    Session session(model_, backend_, options_);
    const std::vector<float> logits = all_logits(session, window, window.size());
    const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
    for (auto i = static_cast<size_t>(first); i < window.size(); ++i) {
      double total = 0;
      const float* row = &logits[(i - 1) * vocab];
      for (size_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(row[v]));
      const double loss = std::log(total) - static_cast<double>(row[window[i]]);
      sums.tokens += 1;
      sums.nll += loss;
      sums.squares += loss * loss;
    }
  }

  ReferenceBackend backend_;
  const Model model_;
  std::vector<int32_t> text_;
  std::optional<int32_t> bos_;
  SessionOptions options_;
};

void expect_equal(const PerplexityResult& result, const Sums& sums) {
  const auto n = static_cast<double>(sums.tokens);
  EXPECT_EQ(result.tokens, sums.tokens);
  EXPECT_NEAR(result.nll / sums.nll, 1.0, 1e-5);
  const double ppl = std::exp(sums.nll / n), mean = sums.nll / n;
  EXPECT_NEAR(result.ppl() / ppl, 1.0, 1e-4);
  const double error = ppl * std::sqrt((sums.squares / n - mean * mean) / (n - 1));
  EXPECT_NEAR(result.standard_error() / error, 1.0, 1e-3);
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
  bool bos;
  int64_t text, prefill_chunk;
};

class PerplexityTest : public testing::TestWithParam<Case> {
 protected:
  PerplexityTest() : backend_(1), dir_(checkpoint_dir("llama_gqa")), model_(open_f32(dir_, backend_)) {
    RopeOptions options;
    options.scaling = GetParam().scaling;
    if (options.scaling != "none") options.factor = 2.0;
    options.original_ctx = 32;
    session_options_ = f32_session();
    session_options_.rope = resolve_rope(model_.spec.rope(), options);
    text_ = random_tokens(GetParam().text, model_.spec.vocab_size);
    if (GetParam().bos) bos_ = 1;
    session_options_.rope_steps = 0;
    session_options_.prefill_chunk = GetParam().prefill_chunk;
  }

  std::vector<PerplexityResult> measure(PerplexityOptions options) {
    options.bos = bos_;
    Session session(model_, backend_, session_options_);
    TokenSource source(text_);
    return measure_perplexity(session, source, "the text", options);
  }

  CpuBackend backend_;
  std::filesystem::path dir_;
  const Model model_;
  std::vector<int32_t> text_;
  std::optional<int32_t> bos_;
  SessionOptions session_options_;
};

TEST_P(PerplexityTest, SlidingEqualsOnePassPerWindowInFloat64) {
  PerplexityOptions options;
  options.ctx = {24, 64, 16};
  options.stride = 20;  // more than the shortest window holds
  const auto results = measure(options);
  Oracle oracle(dir_, *session_options_.rope, text_, bos_);
  ASSERT_EQ(results.size(), 3U);
  for (const auto& result : results) expect_equal(result, oracle.sliding(result.ctx, options.stride));
  EXPECT_EQ(results[2].stride, 20);
}

TEST_P(PerplexityTest, ChunksEqualOnePassPerWindowInFloat64) {
  PerplexityOptions options;
  options.ctx = {16, 32, 25};
  options.method = PerplexityMethod::kChunks;
  const auto results = measure(options);
  Oracle oracle(dir_, *session_options_.rope, text_, bos_);
  for (const auto& result : results) expect_equal(result, oracle.chunks(result.ctx));
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.scaling + (info.param.bos ? "_bos_" : "_nobos_") +
                     std::to_string(info.param.text) + "_" + std::to_string(info.param.prefill_chunk);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, PerplexityTest,
                         testing::Values(Case{"none", true, 143, 512}, Case{"none", false, 144, 50},
                                         Case{"yarn", true, 140, 0}, Case{"dynamic", true, 130, 40},
                                         Case{"dynamic-yarn", false, 131, 512}),
                         case_name);

TEST(PerplexityInterrupted, KeepsWhatWasMeasured) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  Session session(model, backend, f32_session());
  TokenSource source(random_tokens(4000, model.spec.vocab_size));
  PerplexityOptions options;
  options.ctx = {600};
  options.bos = 1;
  std::atomic<bool> interrupted{false};
  options.interrupted = &interrupted;
  int calls = 0;
  const auto results = measure_perplexity(session, source, "t", options,
                                          [&](const PerplexityProgress&) { interrupted = ++calls == 2; });
  EXPECT_FALSE(results[0].complete);
  EXPECT_EQ(results[0].tokens, 599 + 256);
  EXPECT_TRUE(std::isfinite(results[0].ppl()));
}

}  // namespace
}  // namespace lariat::test
