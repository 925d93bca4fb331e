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
