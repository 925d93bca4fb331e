// Every layer's tensors vs transformers (tools/lab/golden/trace_layers.py). The first failure of a new family
// names the layer and op.
#include <map>

#include "kernels/reference/reference_backend.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

class LayerTrace : public testing::TestWithParam<const char*> {};

// transformers scales rotated keys, lariat q.
void without_attention_factor(const ModelSpec& spec, const std::string& name, std::vector<float>& keys) {
  const auto layer = static_cast<size_t>(std::stoi(name.substr(std::string("layers.").size())));
  if (spec.layers[layer].attention.rope != 0) return;
  const double factor = rope_frequencies(spec.rope(), 24).attention_factor;
  for (float& value : keys) value = static_cast<float>(value / factor);
}

TEST_P(LayerTrace, EqualsTransformers) {
  const auto dir = checkpoint_dir(GetParam());
  const Tensors golden = open_safetensors_file(dir / "trace.safetensors");
  const auto tokens = int_tensor(open_safetensors_file(dir / "golden.safetensors"), "tokens");
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&reference)}) {
    const Model model = open_f32(dir, *backend);
    Session session(model, *backend, f32_session());
    std::map<std::string, std::vector<float>> seen;
    session.observe([&](const std::string& name, int64_t cols, std::span<const float> rows) {
      EXPECT_EQ(static_cast<int64_t>(rows.size()) % cols, 0) << name;
      seen[name].insert(seen[name].end(), rows.begin(), rows.end());
    });
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, std::span(tokens).first(20));
    for (size_t i = 20; i < 24; ++i) decode(session, sequence, tokens[i]);
    EXPECT_EQ(seen.size(), 7 * model.spec.layers.size());
    const AttentionSpec& attention = model.spec.layers[0].attention;
    const bool own_heads = attention.latent || attention.qk_norm == QkNorm::kAfterRope;
    for (const auto& [name, rows] : seen) {
      // Latent attention has rows instead of heads, Hunyuan's heads have no weights; scores are equal.
      if (own_heads && (name.ends_with(".q") || name.ends_with(".k") || name.ends_with(".v"))) continue;
      std::vector<float> expected = float_tensor(golden, name);
      if (name.ends_with(".k")) without_attention_factor(model.spec, name, expected);
      double size = 0;
      for (const float value : expected) size = std::max(size, std::abs(static_cast<double>(value)));
      EXPECT_LE(max_abs_difference(rows, expected), 1e-5 * std::max(1.0, size))
          << backend->name() << " " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LayerTrace, testing::ValuesIn(GoldenList::names(GoldenList::kTrace)),
                         [](const auto& test) { return std::string(test.param); });

using LayerTraceOff = OnLlama;

TEST_F(LayerTraceOff, CostsAndChangesNothing) {
  Session session(model_, backend_, f32_session());
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const std::vector<float> plain = all_logits(session, tokens, 3);
  int64_t calls = 0;
  session.observe([&](const std::string&, int64_t, std::span<const float>) { ++calls; });
  EXPECT_EQ(all_logits(session, tokens, 3), plain);
  const int64_t per_step = 7 * static_cast<int64_t>(model_.spec.layers.size());
  EXPECT_EQ(calls, 3 * per_step);
  session.observe({});
  EXPECT_EQ(all_logits(session, tokens, 3), plain);
  EXPECT_EQ(calls, 3 * per_step);
}

}  // namespace
}  // namespace lariat::test
