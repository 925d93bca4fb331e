// What --quantize costs a real model: the demo checkpoint (configs/demo) against itself in its own floats.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/eval/perplexity.h"
#include "engine/memory_check.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/reference/reference_backend.h"
#include "models/text/tokenizer.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/models/resident_bytes.h"

namespace lariat::test {
namespace {

const std::filesystem::path kDemo = std::filesystem::path(LARIAT_SOURCE_DIR) / "configs" / "demo";
constexpr DType kTypes[] = {DType::kQ8, DType::kQ4};

// Of the kind that the demo model knows: tools/lab/demo/make_corpus.py --kind stories --split heldout.
constexpr const char* kStory =
    "Many years ago, a little girl named Rosa lived on a farm behind the hill. Rosa was very gentle. "
    "Rosa had a good friend, a boy named Victor. Tom, a boy who lived near the library, often came to "
    "play too.\nTom liked to eat blueberries best of all. One evening, Rosa was hungry. She asked "
    "Grandma for something to eat. Grandma gave her carrots. Rosa ate all of it. \"That was good!\" "
    "she said, and washed her plate. Grandma made blueberries for Tom, because she knew that he loved "
    "it.\nRosa had a parrot named Pickle. One morning, Grandma asked Rosa to feed the hens. Rosa "
    "wanted to play first. She forgot it, and Grandma was sad. \"I am sorry,\" said Rosa, and she did "
    "it at once.\nA few days later, Rosa and Victor went too far into the forest and lost their way. "
    "It got dark, and Victor was worried. \"Do not worry,\" said Rosa. \"We will find the way.\" Then "
    "she saw an owl in a tree. They followed it, and it led them home. Grandma was waiting at the "
    "door. Rosa called the parrot. \"Come here, Pickle!\" she said. Pickle came at once.\nTom put the "
    "green stone behind the mill and told no one. The next day, Rosa heard a cry near the bakery. A "
    "bee was stuck in an old net. \"Please help me!\" said the bee. Rosa could not do it alone, so she "
    "ran to get Victor. Victor brought a pair of scissors, and together they set the bee free. The bee "
    "ran home to its family, and Rosa waved goodbye.\nMore than anything, Rosa wished for a black hat. "
    "On a warm evening, it was so cold that the water in the lake turned to ice.";

Model open_as(const std::filesystem::path& dir, Backend& backend, std::optional<DType> dtype) {
  return load_model(dir, load_config(dir), backend, dtype);
}

double nll_of_story(Backend& backend, std::optional<DType> dtype) {
  const Tokenizer tokenizer = Tokenizer::load(kDemo);
  const Model model = open_as(kDemo, backend, dtype);
  Session session(model, backend, f32_session());
  TokenSource source(tokenizer.encode(kStory, false));
  PerplexityOptions options;
  options.ctx = {320};
  options.bos = 1;
  const auto results = measure_perplexity(session, source, "story", options, [](const auto&) {});
  EXPECT_GT(results[0].tokens, 300);
  return results[0].nll / static_cast<double>(results[0].tokens);
}

TEST(QuantizedDemo, PerplexityCostsLittle) {
  CpuBackend backend(2);
  const double exact = nll_of_story(backend, std::nullopt);
  EXPECT_LT(exact, 3) << "the demo model knows such stories";
  const double q8 = nll_of_story(backend, DType::kQ8), q4 = nll_of_story(backend, DType::kQ4);
  EXPECT_LT(std::abs(q8 - exact), 0.005);  // half a per cent of perplexity
  EXPECT_LT(q4 - exact, 0.10);
  EXPECT_GT(std::abs(q4 - exact), std::abs(q8 - exact)) << "are four bits used at all?";
}

// The largest error of a logit relative to how much logits differ from each other.
double logits_error(Backend& backend, const std::filesystem::path& dir, DType dtype,
                    std::span<const int32_t> tokens) {
  const Model exact_model = open_as(dir, backend, std::nullopt), model = open_as(dir, backend, dtype);
  Session exact_session(exact_model, backend, f32_session()), session(model, backend, f32_session());
  const std::vector<float> exact = all_logits(exact_session, tokens, tokens.size());
  const std::vector<float> actual = all_logits(session, tokens, tokens.size() / 2);
  double sum = 0, squares = 0, error = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    sum += exact[i];
    squares += static_cast<double>(exact[i]) * exact[i];
    error += std::pow(static_cast<double>(actual[i]) - exact[i], 2);
  }
  const auto n = static_cast<double>(exact.size());
  return std::sqrt(error / n / (squares / n - sum / n * sum / n));
}

TEST(QuantizedDemo, ConvertedWeightsGiveTheFilesMemoryBack) {
  CpuBackend backend(2);
  for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kF32)}) {
    const Model model = open_as(kDemo, backend, dtype);
    const StoredTensor* norm = model.checkpoint->find("model.norm.weight");
    ASSERT_NE(norm, nullptr);
    Session session(model, backend, f32_session());
    Sequence sequence = session.new_sequence();
    session.prefill_last(sequence, std::vector<int32_t>{1, 2, 3});
    const size_t held = resident_bytes(norm->data), all = model.checkpoint->bytes();
    if (dtype) {
      EXPECT_LT(held, all / 4);
    } else {
      EXPECT_GT(held, all / 2) << "used in place";
    }
  }
}

// 200 tokens that the float model itself wrote (tests/golden/README.md), prefilled and decoded.
TEST(QuantizedDemo, LogitsAreClose) {
  CpuBackend backend(2);
  std::ifstream in(golden_dir() / "demo" / "greedy_200.json");
  const auto golden = nlohmann::json::parse(in);
  auto tokens = golden["prompt_tokens"].get<std::vector<int32_t>>();
  for (const auto& token : golden["tokens"]) tokens.push_back(token.get<int32_t>());
  EXPECT_LT(logits_error(backend, kDemo, DType::kQ8, tokens), 0.02);
  EXPECT_LT(logits_error(backend, kDemo, DType::kQ4, tokens), 0.20);
}

class QuantizedFamily : public testing::TestWithParam<const char*> {};

// Every path that a family can take: biases, tied heads, odd sizes, sliding windows.
TEST_P(QuantizedFamily, RunsAsOnTheReference) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  const auto dir = checkpoint_dir(GetParam());
  const std::vector<int32_t> tokens = int_tensor(Checkpoint::open_file(dir / "golden.safetensors"), "tokens");
  const std::span<const int32_t> some = std::span(tokens).first(std::min<size_t>(24, tokens.size()));
  const std::vector<float> exact = float_tensor(Checkpoint::open_file(dir / "golden.safetensors"), "logits");
  for (const DType dtype : kTypes) {
    const Model on_cpu = open_as(dir, cpu, dtype), on_reference = open_as(dir, reference, dtype);
    EXPECT_EQ(on_cpu.weights.dtype, dtype);
    EXPECT_EQ(on_cpu.weights.head.blocks[0].w.dtype, DType::kQ8);
    EXPECT_FALSE(is_quantized(on_cpu.weights.embed.dtype));
    EXPECT_EQ(on_cpu.weights.bytes, planned_weights(on_cpu.spec, dtype).bytes);
    Session a(on_cpu, cpu, f32_session()), b(on_reference, reference, f32_session());
    const std::vector<float> actual = all_logits(a, some, 16), expected = all_logits(b, some, some.size());
    // Where an input lies half way between two integers, one ulp decides which it becomes: a difference of
    // one step in 127 of one input. So the two differ by less than what quantising costs, not by an ulp.
    // With AMX a prefill does not quantise its inputs (kernels/cpu/amx_product.h), and lacks all that this
    // costs.
    const double cost = max_abs_difference(expected, std::span(exact).first(expected.size()));
    const double share = cpu::has_amx_bf16() ? 2.0 : 0.5;
    EXPECT_LT(max_abs_difference(actual, expected), share * cost) << name_of(dtype);
  }
}
INSTANTIATE_TEST_SUITE_P(Families, QuantizedFamily,
                         testing::Values("llama_gqa", "llama_bias", "llama_odd", "llama_mqa_tied",
                                         "llama_f16", "mistral_window", "qwen2", "qwen3_yarn_tied",
                                         "minimind"),
                         [](const auto& test) { return std::string(test.param); });

struct FloatsOnly : ForwardingBackend {
  using ForwardingBackend::ForwardingBackend;
  Traits traits() const override { return {.quantizes = false}; }
};

TEST(Quantize, ABackendThatCannotSaysSoBeforeItLoadsAnything) {
  CpuBackend cpu(1);
  FloatsOnly backend(cpu);
  try {
    open_as(kDemo, backend, DType::kQ4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("weights in q4 do not run on ")) << error.what();
    EXPECT_TRUE(std::string(error.what()).ends_with("; use `device` cpu, or leave `quantize` out"))
        << error.what();
  }
}

TEST(Quantize, WeightsBeyondMemoryAreRefused) {
  CpuBackend cpu(1);
  ModelSpec config = load_config(kDemo);
  for (const DType dtype : kTypes) EXPECT_NO_THROW(check_weight_memory(config, dtype, cpu));
  for (LayerSpec& layer : config.layers) layer.feed_forward.intermediate_size = int64_t{1} << 40;
  EXPECT_THROW(check_weight_memory(config, DType::kQ4, cpu), Error);
  // Its own dtype stays in its file, but no machine can read that much for every token.
  EXPECT_THROW(check_weight_memory(config, config.dtype, cpu), Error);
  EXPECT_THROW(check_weight_memory(config, std::nullopt, cpu), Error);
}

}  // namespace
}  // namespace lariat::test
