#include "engine/runtime/kv_cache.h"
#include "kernels/quant.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/forwarding_backend.h"

namespace lariat::test {
namespace {

// Counts weight bytes of products, and latent attentions: expanded per head (made) or absorbed.
class WatchedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  size_t bytes = 0;
  int made = 0, absorbed = 0;

  void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) override {
    for (const RowBlock& block : weight.blocks) bytes += stored_bytes(block.w);
    ForwardingBackend::linear(x, weight, epilogue, out);
  }
  void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                      const Matrix& out) override {
    for (int64_t i = 0; i < out.rows; ++i)
      bytes += stored_bytes(weight.blocks[static_cast<size_t>(routing.experts[i])].w);
    ForwardingBackend::grouped_linear(x, weight, routing, out);
  }
  void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges, const KvLayer& layer,
                 const AttentionParams& params, const Matrix& out) override {
    ++(layer.k_offset == layer.v_offset ? absorbed : made);
    ForwardingBackend::attention(step, q, ranges, layer, params, out);
  }
};

class TokenCost : public testing::TestWithParam<const char*> {};

TEST_P(TokenCost, IsTheWeightOfTheChosenExperts) {
  CpuBackend cpu(1);
  WatchedBackend backend(cpu);
  const Model model = open_f32(checkpoint_dir(GetParam()), backend);
  Session session(model, backend, f32_session());
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, std::vector<int32_t>{1, 2, 3, 4});
  for (const int32_t token : {5, 6, 7}) {
    backend.bytes = 0;
    decode(session, sequence, token);
    EXPECT_EQ(backend.bytes, model.weights.token_bytes);
  }
  EXPECT_LT(model.weights.token_bytes, model.weights.bytes);
}

INSTANTIATE_TEST_SUITE_P(Families, TokenCost,
                         testing::Values("mixtral", "granite_moe", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe",
                                         "deepseek_v2", "deepseek_v2_full", "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

std::vector<int32_t> varied_tokens(const Model& model, int32_t n) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < n; ++i)
    tokens.push_back((i * 37 + i / 7) % static_cast<int32_t>(model.spec.vocab_size));
  return tokens;
}

class LatentHeads : public testing::TestWithParam<const char*> {
 protected:
  std::vector<float> run(const SessionOptions& options, std::span<const int32_t> tokens) {
    backend_.made = backend_.absorbed = 0;
    Session session(model_, backend_, options);
    return all_logits(session, tokens, tokens.size());
  }
  std::vector<float> absorbed(SessionOptions options, std::span<const int32_t> tokens) {
    options.latent_workspace = 0;
    std::vector<float> logits = run(options, tokens);
    EXPECT_EQ(backend_.made, 0);
    return logits;
  }

  CpuBackend cpu_{1};
  WatchedBackend backend_{cpu_};
  Model model_ = open_f32(checkpoint_dir(GetParam()), backend_);
  int n_layers_ = static_cast<int>(model_.spec.layers.size());
};

// Long steps expand keys and values, short steps absorb them.
TEST_P(LatentHeads, EqualAbsorbedAttention) {
  const std::vector<int32_t> tokens = varied_tokens(model_, 300);
  SessionOptions options = f32_session();
  const std::vector<float> expected = absorbed(options, tokens);
  for (const int64_t chunk : {0, 64, 7}) {
    options.prefill_chunk = chunk;
    EXPECT_LE(max_abs_difference(run(options, tokens), expected), kSumOrderTolerance);
    EXPECT_EQ(backend_.made, chunk == 7 ? 0 : n_layers_ * (chunk == 0 ? 1 : 5)) << chunk;
    EXPECT_EQ(backend_.absorbed, chunk == 7 ? n_layers_ * 43 : 0) << chunk;
  }
}

TEST_P(LatentHeads, SeveralSequences) {
  const std::vector<int32_t> tokens = varied_tokens(model_, 300);
  SessionOptions options = f32_session();
  options.prefill_chunk = 0;
  const std::vector<float> expected = absorbed(options, tokens);
  Session session(model_, backend_, options);
  Sequence first = session.new_sequence(), second = session.new_sequence();
  const std::span<const int32_t> all = tokens;
  prefill(session, second, all.first(270));
  backend_.made = 0;
  const Prompt prompts[] = {{&first, all, 0}, {&second, all.subspan(270), 0}};
  const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
  std::vector<float> whole(vocab * tokens.size()), behind(vocab * 30);
  session.forward(prompts, [&](size_t prompt, int64_t row, const Matrix& logits) {
    float* to = (prompt == 0 ? whole : behind).data() + static_cast<size_t>(row) * vocab;
    std::copy_n(logits.f32(), static_cast<size_t>(logits.rows) * vocab, to);
  });
  EXPECT_EQ(backend_.made, n_layers_);
  EXPECT_LE(max_abs_difference(whole, expected), kSumOrderTolerance);
  EXPECT_LE(max_abs_difference(behind, std::span(expected).last(behind.size())), kSumOrderTolerance);
}

// More positions than one expansion holds, two of four heads at a time; then memory for no head.
TEST_P(LatentHeads, InPieces) {
  const std::vector<int32_t> tokens = varied_tokens(model_, 1200);
  SessionOptions options = f32_session();
  options.prefill_chunk = 0;
  const std::vector<float> expected = absorbed(options, tokens);
  const LatentSpec& latent = model_.spec.layers[0].attention.latent;
  const int64_t one_head = 5 * kKvPage * 2 * latent.query_dim() * static_cast<int64_t>(sizeof(float));
  for (const int64_t workspace : {2 * one_head, one_head - 1}) {
    options.latent_workspace = workspace;
    EXPECT_LE(max_abs_difference(run(options, tokens), expected), kSumOrderTolerance);
    EXPECT_EQ(backend_.made, workspace < one_head ? 0 : 2 * n_layers_);
  }
}

class LatentRounding : public LatentHeads {};

// Expanded keys and values are rounded to the cache's dtype.
TEST_P(LatentRounding, ErrorIsCloseToAbsorbedAttention) {
  const std::vector<int32_t> tokens = varied_tokens(model_, 300);
  const std::vector<float> exact = absorbed(f32_session(), tokens);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SessionOptions options = f32_session();
    options.k_dtype = options.v_dtype = dtype;
    const double rows_alone = max_abs_difference(absorbed(options, tokens), exact);
    const double made = max_abs_difference(run(options, tokens), exact);
    // Two independent roundings: sqrt(2) times the error, more in the maximum.
    EXPECT_LE(made, 2.5 * rows_alone) << name_of(dtype);
    EXPECT_GT(rows_alone, 0.0);
  }
}

// A checkpoint without experts: a rounding could change their choice.
INSTANTIATE_TEST_SUITE_P(Families, LatentRounding, testing::Values("minicpm3"),
                         [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(Families, LatentHeads,
                         testing::Values("deepseek_v2", "deepseek_v2_full", "deepseek_v3", "minicpm3"),
                         [](const auto& test) { return std::string(test.param); });

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
