// Cost of quantizing the demo checkpoint (configs/demo).
#include <cmath>
#include <numeric>

#include "engine/contexts/memory_check.h"
#include "kernels/reference/reference_backend.h"
#include "tests/bits_of_rows.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/long_golden.h"
#include "tests/engine/losses_by_hand.h"
#include "tests/models/resident_bytes.h"

namespace lariat::test {
namespace {

constexpr DType kTypes[] = {DType::kQ8, DType::kQ4};

Model open_as(const std::filesystem::path& dir, Backend& backend, std::optional<DType> dtype) {
  return load_model(dir, load_config(dir), backend, dtype);
}

TEST(QuantizedDemo, ConvertedWeightsFreeTheMappedFile) {
  CpuBackend backend(2);
  for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kF32)}) {
    const Model model = open_as(demo_dir(), backend, dtype);
    const StoredTensor* norm = model.files.tensors->find("model.norm.weight");
    ASSERT_NE(norm, nullptr);
    Session session(model, backend, f32_session());
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::vector<int32_t>{1, 2, 3});
    const size_t held = resident_bytes(norm->data), all = model.files.tensors->bytes();
    if (dtype || backend.traits().copies_bf16) {
      EXPECT_LT(held, all / 4);
    } else {
      EXPECT_GT(held, all / 2) << "memory-mapped";
    }
  }
}

// Logits of tokens half prefilled and half decoded; mean loss after the first token.
struct DemoRun {
  std::vector<float> logits;
  double loss = 0;
  DemoRun(Backend& backend, std::optional<DType> dtype, std::span<const int32_t> tokens) {
    const Model model = open_as(demo_dir(), backend, dtype);
    Session session(model, backend, f32_session());
    logits = all_logits(session, tokens, tokens.size() / 2);
    const size_t vocab = logits.size() / tokens.size();
    for (size_t i = 1; i < tokens.size(); ++i)
      loss += loss_by_hand(std::span(logits).subspan((i - 1) * vocab, vocab), tokens[i]);
    loss /= static_cast<double>(tokens.size() - 1);
  }
};

// Text that the float model generated (tests/golden/README.md).
TEST(QuantizedDemo, CostsLittle) {
  CpuBackend backend(2);
  const nlohmann::json golden = read_json(golden_dir() / "demo" / "greedy_200.json");
  auto tokens = golden["prompt_tokens"].get<std::vector<int32_t>>();
  for (const auto& token : golden["tokens"]) tokens.push_back(token.get<int32_t>());
  const DemoRun exact(backend, std::nullopt, tokens), q8(backend, DType::kQ8, tokens),
      q4(backend, DType::kQ4, tokens);
  const double n = static_cast<double>(exact.logits.size());
  const double mean = std::accumulate(exact.logits.begin(), exact.logits.end(), 0.0) / n;
  double deviation = 0;
  for (const float x : exact.logits) deviation += std::pow(x - mean, 2) / n;
  deviation = std::sqrt(deviation);
  EXPECT_LT(rms_difference(q8.logits, exact.logits), 0.02 * deviation);
  EXPECT_LT(rms_difference(q4.logits, exact.logits), 0.20 * deviation);
  EXPECT_LT(exact.loss, 1) << "the demo model generated this text";
  EXPECT_LT(std::abs(q8.loss - exact.loss), 0.005);  // half a percent of perplexity
  EXPECT_LT(q4.loss - exact.loss, 0.03);
  EXPECT_GT(std::abs(q4.loss - exact.loss), std::abs(q8.loss - exact.loss)) << "4-bit weights have no effect";
}

class QuantizedFamily : public testing::TestWithParam<const char*> {};

// Biases, tied heads, odd sizes, sliding windows.
TEST_P(QuantizedFamily, RunsAsOnTheReference) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  const auto dir = checkpoint_dir(GetParam());
  const std::vector<int32_t> tokens = int_tensor(open_safetensors_file(dir / "golden.safetensors"), "tokens");
  const std::span<const int32_t> some = std::span(tokens).first(std::min<size_t>(24, tokens.size()));
  const std::vector<float> exact = float_tensor(open_safetensors_file(dir / "golden.safetensors"), "logits");
  for (const DType dtype : kTypes) {
    const Model on_cpu = open_as(dir, cpu, dtype), on_reference = open_as(dir, reference, dtype);
    EXPECT_EQ(on_cpu.weights.format.dtype, dtype);
    EXPECT_EQ(on_cpu.weights.head.blocks[0].w.dtype, DType::kQ8);
    EXPECT_FALSE(is_quantized(on_cpu.weights.embed.m.dtype));
    EXPECT_EQ(on_cpu.weights.bytes, planned_weights(on_cpu.spec, dtype).bytes);
    Session a(on_cpu, cpu, f32_session()), b(on_reference, reference, f32_session());
    const std::vector<float> actual = all_logits(a, some, 16), expected = all_logits(b, some, some.size());
    // An ulp may round an input to another integer, one step in 127: runs differ by less than the
    // quantization error. Products of many rows may be float products (docs/accuracy.md), which lack that
    // error.
    const double cost = max_abs_difference(expected, std::span(exact).first(expected.size()));
    const double share = linear_rows_alike(true) < std::ssize(some) ? 2.0 : 0.5;
    EXPECT_LT(max_abs_difference(actual, expected), share * cost) << name_of(dtype);
  }
}
INSTANTIATE_TEST_SUITE_P(Families, QuantizedFamily,
                         testing::Values("llama_gqa", "llama_bias", "llama_odd", "llama_mqa_tied",
                                         "llama_f16", "mistral_window", "qwen2", "qwen3_yarn_tied",
                                         "minimind"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Quantize, WeightsBeyondMemoryAreRefused) {
  CpuBackend cpu(1);
  ModelSpec config = load_config(demo_dir());
  for (const DType dtype : kTypes) EXPECT_NO_THROW(check_weight_memory(config, dtype, cpu));
  for (LayerSpec& layer : config.layers) layer.feed_forward.intermediate_size = int64_t{1} << 40;
  EXPECT_THROW(check_weight_memory(config, DType::kQ4, cpu), Error);
  // The file's dtype is memory-mapped, but cannot be read per token.
  EXPECT_THROW(check_weight_memory(config, config.dtype, cpu), Error);
  EXPECT_THROW(check_weight_memory(config, std::nullopt, cpu), Error);
}

// Blocks of kv_b in 8 bits: U_h is multiplied transposed, as floats.
TEST(Quantize, ATransposedBlockIsPlannedAsItLoads) {
  CpuBackend cpu(1);
  const auto dir = checkpoint_dir("deepseek_v2");
  const ModelSpec spec = load_config(dir);
  ModelFiles files(dir);
  const auto tensors = std::make_shared<Tensors>(open_safetensors(dir));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    StoredTensor kv_b = *tensors->take("model.layers." + std::to_string(i) + ".self_attn.kv_b_proj.weight");
    const int64_t rows = kv_b.shape[0], cols = kv_b.shape[1];
    const auto zeros = [cols](int64_t, const CodeRow& to) {
      std::fill_n(to.codes, cols, uint8_t{0});
      *to.scales = 0;
    };
    kv_b.reader = std::make_shared<const HostWeight>(WeightFormat(DType::kQ8), rows, cols, zeros);
    kv_b.quantized = true;
    tensors->put(std::move(kv_b));
  }
  files.tensors = tensors;
  const Weights planned = planned_weights(spec, {}, tensors.get());
  const Model loaded = load_model(std::move(files), spec, cpu, {});
  EXPECT_EQ(planned.bytes, loaded.weights.bytes);
  const LatentWeights &a = planned.layers[0].latent, &b = loaded.weights.layers[0].latent;
  EXPECT_EQ(a.v_up.blocks[0].w.dtype, DType::kQ8);
  EXPECT_EQ(a.k_absorb.blocks[0].w.dtype, spec.dtype);
  EXPECT_EQ(b.k_absorb.blocks[0].w.dtype, spec.dtype);
  EXPECT_FALSE(a.k_up);
  EXPECT_FALSE(b.k_up);
}

}  // namespace
}  // namespace lariat::test
