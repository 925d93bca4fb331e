#include "engine/eval/divergence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "models/io/json_file.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

std::map<std::string, double> by_key(const DivergenceResult& result) {
  std::map<std::string, double> values;
  for (const DivergenceFigure& figure : figures(result)) {
    values[figure.key] = figure.value;
    if (figure.error) values[std::string(figure.key) + "_stderr"] = *figure.error;
  }
  return values;
}

TEST(Divergence, FiguresEqualThoseOfNumpy) {
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

TEST(Divergence, OfLogitsThatAreNoNumbers) {
  const std::vector<float> plain = {1, 2, 3}, without = {1, -HUGE_VALF, 3}, broken = {1, std::nanf(""), 3};
  EXPECT_NEAR(diverge(plain, without, 0).kl,
              -std::log(1 - std::exp(2.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0))), 1e-12);
  EXPECT_EQ(diverge(without, plain, 0).kl, HUGE_VAL);
  EXPECT_EQ(diverge(without, plain, 1).loss, HUGE_VAL);
  EXPECT_EQ(diverge(without, without, 0).kl, 0);
  DivergenceResult result;
  EXPECT_TRUE(std::isnan(by_key(result).at("kl_p99")));  // interrupted before the first token
  for (const auto& model : {plain, broken, plain}) result.tokens.push_back(diverge(model, plain, 0));
  for (const auto& [key, value] : by_key(result))
    EXPECT_EQ(std::isnan(value), key.rfind("against", 0) != 0 && key.rfind("same", 0) != 0) << key;
}

std::vector<int32_t> divergence_text(int64_t n, int64_t vocab) {
  std::mt19937 random(11);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (auto& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

// How the model and how the reference is run.
struct DivergenceCase {
  const char* name;
  DType weights;
  const char* scaling;
  PerplexityMethod method;
  std::optional<int32_t> bos;
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
        text_(divergence_text(143, spec_.vocab_size)) {
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

  // Of every scored token: ln of the probabilities over the vocabulary, in double. One session for each
  // window, which is read at once.
  std::vector<std::vector<double>> scored(const Model& model, const SessionOptions& options,
                                          std::vector<int32_t>& targets) {
    const auto vocab = static_cast<size_t>(spec_.vocab_size), ctx = static_cast<size_t>(windows_.ctx[0]);
    const size_t bos = windows_.bos ? 1 : 0;
    const bool sliding = windows_.method == PerplexityMethod::kSliding;
    std::vector<std::vector<double>> rows;
    targets.clear();
    for (size_t begin = 0, done = 0; done < text_.size(); begin += sliding ? 25 : ctx) {
      const size_t end = std::min(begin + ctx - bos, text_.size());
      if (!sliding && end < begin + ctx - bos) break;
      std::vector<int32_t> window(bos, windows_.bos.value_or(0));
      window.insert(window.end(), text_.begin() + static_cast<int64_t>(begin),
                    text_.begin() + static_cast<int64_t>(end));
      Session session(model, backend_, options);
      const auto logits = all_logits(session, window, window.size());
      const size_t first = !sliding ? ctx / 2 + 1 : std::max<size_t>(done - begin + bos, 1);
      for (size_t i = first; i < window.size(); ++i) {
        const float* row = &logits[(i - 1) * vocab];
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]));
        rows.emplace_back();
        for (size_t v = 0; v < vocab; ++v) rows.back().push_back(static_cast<double>(row[v]) - std::log(sum));
        targets.push_back(window[i]);
      }
      done = end;
    }
    return rows;
  }

  CpuBackend backend_;
  std::filesystem::path dir_;
  ModelSpec spec_;
  Model reference_, model_;
  std::vector<int32_t> text_;
  SessionOptions options_ = f32_session(), reference_options_ = f32_session();
  PerplexityOptions windows_;
};

TEST_P(DivergenceOf, EqualsThatOfTwoSeparateRuns) {
  Session session(model_, backend_, options_), reference(reference_, backend_, reference_options_);
  TokenSource source(text_);
  const DivergenceResult result = measure_divergence(session, reference, source, "the text", windows_, 1);
  EXPECT_TRUE(result.complete);
  SessionOptions at_once = options_, reference_at_once = reference_options_;
  at_once.prefill_chunk = reference_at_once.prefill_chunk = 0;
  std::vector<int32_t> targets;
  const auto p = scored(model_, at_once, targets), r = scored(reference_, reference_at_once, targets);
  ASSERT_EQ(result.tokens.size(), targets.size());
  double sum = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    double kl = 0;
    for (size_t v = 0; v < p[i].size(); ++v) kl += std::exp(r[i][v]) * (r[i][v] - p[i][v]);
    const auto target = static_cast<size_t>(targets[i]);
    EXPECT_NEAR(result.tokens[i].kl, kl, 1e-3 * kl + 1e-8) << i;
    EXPECT_NEAR(result.tokens[i].loss, -p[i][target], kSumOrderTolerance) << i;
    EXPECT_NEAR(result.tokens[i].reference_loss, -r[i][target], kSumOrderTolerance) << i;
    const auto top = [](const auto& row) { return std::max_element(row.begin(), row.end()) - row.begin(); };
    EXPECT_EQ(result.tokens[i].same_top, top(p[i]) == top(r[i])) << i;
    sum += kl;
  }
  EXPECT_GT(sum, 1e-6) << "the two models are to differ";
}

TEST_P(DivergenceOf, AModelFromItselfIsNothingAtAll) {
  Session session(model_, backend_, options_), same(model_, backend_, options_);
  TokenSource source(text_);
  const auto values = by_key(measure_divergence(session, same, source, "the text", windows_));
  EXPECT_EQ(values.at("ppl"), values.at("against_ppl"));
  for (const char* one : {"ppl_ratio", "same_top"}) EXPECT_EQ(values.at(one), 1) << one;
  for (const char* zero : {"kl", "kl_stderr", "kl_p99", "kl_max", "p_diff", "p_diff_stderr", "p_diff_rms",
                           "p_diff_rms_stderr", "p_diff_max", "ppl_ratio_stderr", "same_top_stderr"})
    EXPECT_EQ(values.at(zero), 0) << zero;
}

INSTANTIATE_TEST_SUITE_P(
    All, DivergenceOf,
    testing::Values(DivergenceCase{"q8", DType::kQ8, "none", PerplexityMethod::kChunks, 1, 512},
                    DivergenceCase{"q4", DType::kQ4, "none", PerplexityMethod::kSliding, std::nullopt, 7},
                    DivergenceCase{"bf16", DType::kBF16, "none", PerplexityMethod::kSliding, 1, 0},
                    DivergenceCase{"dynamic", DType::kF32, "dynamic", PerplexityMethod::kChunks, std::nullopt,
                                   6}),
    [](const auto& of) { return std::string(of.param.name); });

std::string divergence_error(const std::string& reference, int64_t ctx) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  const Model other = open_f32(checkpoint_dir(reference), backend);
  Session session(model, backend, f32_session()), other_session(other, backend, f32_session());
  TokenSource source(divergence_text(30, 61));
  PerplexityOptions options;
  options.ctx = {ctx};
  try {
    measure_divergence(session, other_session, source, "short.txt", options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(DivergenceErrors, AreNamed) {
  EXPECT_EQ(divergence_error("llama_gqa", 30), "");
  EXPECT_NE(divergence_error("qwen3", 30).find("qwen3/config.json one of 64"), std::string::npos);
  EXPECT_NE(divergence_error("llama_gqa", 31).find("short.txt: has 30 tokens"), std::string::npos);
  EXPECT_NE(divergence_error("llama_gqa", int64_t{1} << 45).find("the KV caches would take"),
            std::string::npos);
}

TEST(DivergenceErrors, InterruptionKeepsWhatWasCompared) {
  CpuBackend backend(1);
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  Session session(model, backend, f32_session()), other(model, backend, f32_session());
  TokenSource source(divergence_text(100, 61));
  std::atomic<bool> interrupted{false};
  PerplexityOptions options;
  options.ctx = {20};
  options.method = PerplexityMethod::kChunks;
  options.interrupted = &interrupted;
  const auto stop = [&](int64_t position) { interrupted = position == 40; };
  const auto result = measure_divergence(session, other, source, "t", options, 1, stop);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.tokens.size(), 2U * 9);
}

}  // namespace
}  // namespace lariat::test
