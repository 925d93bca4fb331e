// What a token of a model with experts, or with latent attention, costs.
#include "engine/kv_cache.h"
#include "kernels/quant.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/forwarding_backend.h"

namespace lariat::test {
namespace {

// Counts the bytes of the weights that products read.
class CountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  size_t bytes = 0;

  void matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
              const Matrix& out) override {
    bytes += stored_bytes(w);
    ForwardingBackend::matmul(x, w, bias, compute, out);
  }
  void expert_matmul(const Matrix& x, std::span<const Matrix> experts, const Routing& routing, DType compute,
                     const Matrix& out) override {
    for (int64_t i = 0; i < out.rows; ++i)
      bytes += stored_bytes(experts[static_cast<size_t>(routing.experts[i])]);
    ForwardingBackend::expert_matmul(x, experts, routing, compute, out);
  }
};

class TokenCost : public testing::TestWithParam<const char*> {};

TEST_P(TokenCost, IsWhatTheChosenExpertsWeigh) {
  CpuBackend cpu(1);
  CountingBackend backend(cpu);
  const Model model = open_f32(checkpoint_dir(GetParam()), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  session.prefill(sequence, std::vector<int32_t>{1, 2, 3, 4});
  for (const int32_t token : {5, 6, 7}) {
    backend.bytes = 0;
    session.decode(sequence, token);
    EXPECT_EQ(backend.bytes, model.weights.token_bytes);
  }
  EXPECT_LT(model.weights.token_bytes, model.weights.bytes);
}

INSTANTIATE_TEST_SUITE_P(Families, TokenCost,
                         testing::Values("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v2_full",
                                         "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

// Counts the attentions that ran over keys and values made for each head.
class MadeHeadsBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  int made = 0, absorbed = 0;

  void attention(const Matrix& q, const RopeTable& rope, const KvLayer& layer, const AttentionParams& params,
                 const Matrix& out) override {
    ++(layer.k_offset == layer.v_offset ? absorbed : made);
    ForwardingBackend::attention(q, rope, layer, params, out);
  }
};

class LatentHeads : public testing::TestWithParam<const char*> {};

// A long step makes keys and values from the cached rows, a short one multiplies queries instead, and who
// looks at the layers gets the latter: the same logits, whatever the pieces, alone and beside others.
TEST_P(LatentHeads, EqualAbsorbedAttention) {
  CpuBackend cpu(1);
  MadeHeadsBackend backend(cpu);
  const Model model = open_f32(checkpoint_dir(GetParam()), backend);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 300; ++i)
    tokens.push_back((i * 37 + i / 7) % static_cast<int32_t>(model.spec.vocab_size));
  const auto n_layers = static_cast<int>(model.spec.layers.size());
  SessionOptions options = f32_session();

  Session absorbed(model, backend, options);
  absorbed.observe([](const std::string&, int64_t, std::span<const float>) {});
  const std::vector<float> expected = all_logits(absorbed, tokens, tokens.size());
  EXPECT_EQ(backend.made, 0);

  for (const int64_t chunk : {0, 64, 7}) {
    backend.made = backend.absorbed = 0;
    options.prefill_chunk = chunk;
    Session session(model, backend, options);
    EXPECT_LE(max_abs_difference(all_logits(session, tokens, tokens.size()), expected), kSumOrderTolerance);
    EXPECT_EQ(backend.made, chunk == 7 ? 0 : n_layers * (chunk == 0 ? 1 : 5)) << chunk;
    EXPECT_EQ(backend.absorbed, chunk == 7 ? n_layers * 43 : 0) << chunk;
  }

  options.prefill_chunk = 0;
  Session session(model, backend, options);
  Sequence first = session.new_sequence(), second = session.new_sequence();
  const std::span<const int32_t> all = tokens;
  session.prefill(second, all.first(270));  // two pages
  backend.made = 0;
  const Prompt prompts[] = {{&first, all, 0}, {&second, all.subspan(270), 0}};
  const auto vocab = static_cast<size_t>(model.spec.vocab_size);
  std::vector<float> last(vocab * tokens.size()), behind(vocab * 30);
  session.prefill(prompts, [&](size_t prompt, int64_t row, const Matrix& logits) {
    std::vector<float>& to = prompt == 0 ? last : behind;
    std::copy_n(logits.f32(), static_cast<size_t>(logits.rows) * vocab,
                to.data() + static_cast<size_t>(row) * vocab);
  });
  EXPECT_EQ(backend.made, n_layers);
  EXPECT_LE(max_abs_difference(last, expected), kSumOrderTolerance);
  EXPECT_LE(max_abs_difference(behind, std::span(expected).last(behind.size())), kSumOrderTolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, LatentHeads,
                         testing::Values("deepseek_v2", "deepseek_v2_full", "deepseek_v3", "minicpm3"),
                         [](const auto& test) { return std::string(test.param); });

// One row of kv_lora_rank + qk_rope_head_dim values per token and layer, whatever the number of heads.
TEST(LatentCache, HoldsOneRowForAllHeads) {
  CpuBackend backend(1);
  const ModelSpec spec = load_config(checkpoint_dir("deepseek_v2"));
  const LatentSpec& latent = spec.layers[0].attention.latent;
  const KvPool pool(spec, backend, DType::kF16, DType::kBF16);
  const auto row = static_cast<size_t>(latent.kv_rank + latent.rope_dim);
  EXPECT_EQ(pool.k_bytes_per_position(), spec.layers.size() * row * 2);
  EXPECT_EQ(pool.v_bytes_per_position(), 0U);
  EXPECT_EQ(pool.geometry().page_bytes, spec.layers.size() * row * 2 * kKvPage);
  EXPECT_EQ(pool.rotated_layers().size(), spec.layers.size());
}

}  // namespace
}  // namespace lariat::test
