#include "engine/eval/measure/divergence.h"

#include <map>

#include "models/io/json_file.h"
#include "tests/bits_of_rows.h"
#include "tests/engine/losses_by_hand.h"

namespace lariat::test {
namespace {

std::map<std::string, double> by_key(const DivergenceResult& result) {
  std::map<std::string, double> values;
  const Divergence figures = divergence_of(result);
  for (const std::string key : kFigures) {
    values[key] = figures.at(key).value;
    if (const auto error = figures.at(key).error) values[key + "_stderr"] = *error;
  }
  return values;
}

TEST(Divergence, FiguresEqualNumpy) {
  const auto golden = read_json(golden_dir() / "divergence.json");
  DivergenceResult result;
  for (size_t i = 0; i < golden["tokens"].size(); ++i) {
    const std::vector<float> model = golden["model"][i], reference = golden["reference"][i];
    result.tokens.push_back(diverge(model, reference, golden["tokens"][i]));
  }
  const auto values = by_key(result);
  ASSERT_EQ(values.size(), golden["figures"].size());
  for (const auto& [key, expected] : golden["figures"].items())
    EXPECT_NEAR(values.at(key), expected.get<double>(), 1e-9) << key;
}

TEST(Divergence, NonFiniteLogits) {
  const std::vector<float> plain = {1, 2, 3}, without = {1, -HUGE_VALF, 3}, broken = {1, std::nanf(""), 3};
  EXPECT_NEAR(diverge(plain, without, 0).kl,
              -std::log(1 - std::exp(2.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0))), 1e-12);
  EXPECT_EQ(diverge(without, plain, 0).kl, HUGE_VAL);
  EXPECT_EQ(diverge(without, plain, 1).loss, HUGE_VAL);
  EXPECT_EQ(diverge(without, without, 0).kl, 0);
  DivergenceResult result;
  EXPECT_TRUE(std::isnan(by_key(result).at("kl_p99")));
  for (const auto& model : {plain, broken, plain}) result.tokens.push_back(diverge(model, plain, 0));
  for (const auto& [key, value] : by_key(result))
    EXPECT_EQ(std::isnan(value), key.rfind("against", 0) != 0 && key.rfind("same", 0) != 0) << key;
}

struct DivergenceCase {
  const char* name;
  DType weights;
  const char* scaling;
  PerplexityMethod method;
  std::vector<int32_t> bos;
  int64_t prefill_chunk;
};

class DivergenceOf : public testing::TestWithParam<DivergenceCase> {
 protected:
  DivergenceOf()
      : backend_(1),
        dir_(checkpoint_dir("llama_gqa")),
        spec_(load_config(dir_)),
        reference_(load_model(dir_, spec_, backend_, DType::kF32)),
        model_(load_model(dir_, spec_, backend_, GetParam().weights)),
        text_(random_text(143, spec_.vocab_size, 11)) {
    RopeOptions rope;
    rope.scaling = GetParam().scaling;
    if (*rope.scaling != "none") rope.factor = 2.0;
    rope.original_ctx = 16;
    options_.rope = resolve_rope(spec_.rope(), rope);
    options_.prefill_chunk = reference_options_.prefill_chunk = GetParam().prefill_chunk;
    windows_.ctx = {40};
    windows_.stride = 25;
    windows_.method = GetParam().method;
    windows_.bos = GetParam().bos;
  }

  CpuBackend backend_;
  std::filesystem::path dir_;
  ModelSpec spec_;
  Model reference_, model_;
  std::vector<int32_t> text_;
  SessionOptions options_ = f32_session(), reference_options_ = f32_session();
  PerplexityOptions windows_;
};

TEST_P(DivergenceOf, EqualsTwoSeparateRuns) {
  Session session(model_, backend_, options_), reference(reference_, backend_, reference_options_);
  TokenSource source(text_);
  const DivergenceResult result = measure_divergence(session, reference, source, windows_, 1);
  EXPECT_TRUE(result.complete);
  SessionOptions at_once = options_, reference_at_once = reference_options_;
  at_once.prefill_chunk = reference_at_once.prefill_chunk = 0;
  // Uses equal chunks where products of few quantized rows round differently (docs/accuracy.md).
  if (is_quantized(GetParam().weights) && linear_rows_alike(true) < windows_.ctx[0])
    at_once.prefill_chunk = options_.prefill_chunk;
  double sum = 0;
  size_t at = 0;
  for (const HandWindow& window : windows_by_hand(text_, windows_, windows_.ctx[0])) {
    const auto p = window.log_probabilities(model_, backend_, at_once);
    const auto r = window.log_probabilities(reference_, backend_, reference_at_once);
    for (size_t i = 0; i < p.size(); ++i, ++at) {
      ASSERT_LT(at, result.tokens.size());
      const TokenDivergence& found = result.tokens[at];
      double kl = 0;
      for (size_t v = 0; v < p[i].size(); ++v) kl += std::exp(r[i][v]) * (r[i][v] - p[i][v]);
      const auto target = static_cast<size_t>(window.tokens[window.first + i]);
      EXPECT_NEAR(found.kl, kl, 1e-3 * kl + 1e-8) << at;
      EXPECT_NEAR(found.loss, -p[i][target], kSumOrderTolerance) << at;
      EXPECT_NEAR(found.reference_loss, -r[i][target], kSumOrderTolerance) << at;
      const auto top = [](const auto& row) { return std::ranges::max_element(row) - row.begin(); };
      EXPECT_EQ(found.same_top, top(p[i]) == top(r[i])) << at;
      sum += kl;
    }
  }
  EXPECT_EQ(at, result.tokens.size());
  EXPECT_GT(sum, 1e-6) << "the two models must differ";
}

TEST_P(DivergenceOf, AModelFromItselfIsZero) {
  Session session(model_, backend_, options_), same(model_, backend_, options_);
  TokenSource source(text_);
  const auto values = by_key(measure_divergence(session, same, source, windows_));
  EXPECT_EQ(values.at("ppl"), values.at("against_ppl"));
  for (const char* one : {"ppl_ratio", "same_top"}) EXPECT_EQ(values.at(one), 1) << one;
  for (const char* zero : {"kl", "kl_stderr", "kl_p99", "kl_max", "p_diff", "p_diff_stderr", "p_diff_rms",
                           "p_diff_rms_stderr", "p_diff_max", "ppl_ratio_stderr", "same_top_stderr"})
    EXPECT_EQ(values.at(zero), 0) << zero;
}

INSTANTIATE_TEST_SUITE_P(
    All, DivergenceOf,
    testing::Values(DivergenceCase{"q8", DType::kQ8, "none", PerplexityMethod::kChunks, {1}, 512},
                    DivergenceCase{"q4", DType::kQ4, "none", PerplexityMethod::kSliding, {}, 7},
                    DivergenceCase{"bf16", DType::kBF16, "none", PerplexityMethod::kSliding, {1, 5}, 0},
                    DivergenceCase{"dynamic", DType::kF32, "dynamic", PerplexityMethod::kChunks, {}, 6}),
    [](const auto& of) { return std::string(of.param.name); });

std::string divergence_error(const std::string& reference, int64_t ctx) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  const Model other = open_f32(checkpoint_dir(reference), backend);
  Session session(model, backend, f32_session()), other_session(other, backend, f32_session());
  TokenSource source(random_text(30, 61, 11), 0, "short.txt");
  return error_of([&] { measure_divergence(session, other_session, source, {.ctx = {ctx}}); });
}

TEST(DivergenceErrors, AreNamed) {
  EXPECT_EQ(divergence_error("llama_gqa", 30), "");
  EXPECT_TRUE(names(divergence_error("qwen3", 30), "qwen3/config.json | 64"));
  EXPECT_TRUE(names(divergence_error("llama_gqa", 31), "short.txt | 30"));
  EXPECT_TRUE(names(divergence_error("llama_gqa", int64_t{1} << 45), "35184372088832"));
}

TEST(DivergenceErrors, InterruptionKeepsComparedTokens) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  Session session(model, backend, f32_session()), other(model, backend, f32_session());
  TokenSource source(random_text(100, 61, 11));
  std::atomic<bool> interrupted{false};
  const PerplexityOptions options{
      .ctx = {20}, .method = PerplexityMethod::kChunks, .interrupted = &interrupted};
  const auto stop = [&](int64_t position) { interrupted = position == 40; };
  const auto result = measure_divergence(session, other, source, options, 1, stop);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.tokens.size(), 2U * 9);
}

}  // namespace
}  // namespace lariat::test
