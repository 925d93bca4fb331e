// Scalings below, at and beyond the original length vs one-shot transformers (golden/rope/logits.json).
#include "models/io/json_file.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

TEST(RopeLogits, EveryScalingAtEveryLength) {
  const nlohmann::json golden = read_json(golden_dir() / "rope" / "logits.json");
  const Tensors expected = open_safetensors_file(golden_dir() / "rope" / "logits.safetensors");
  const auto dir = checkpoint_dir(golden["checkpoint"].get<std::string>());
  const nlohmann::json own = read_json(dir / "config.json");
  const auto all_tokens = golden["tokens"].get<std::vector<int32_t>>();
  CpuBackend backend(2);
  SessionOptions options = f32_session();
  options.rope_steps = 0;  // as transformers
  ASSERT_GE(golden["cases"].size(), 40U);
  for (const auto& test : golden["cases"]) {
    const auto n = test["length"].get<size_t>();
    const std::span<const int32_t> tokens = std::span(all_tokens).first(n);
    nlohmann::json config = own;
    config.update(test["config"]);
    const Model model = load_model(dir, parse_config(config.dump(), "config.json"), backend, DType::kF32);
    Session session(model, backend, options);
    const std::vector<float> logits = all_logits(session, tokens, n);
    const std::vector<float> wanted = float_tensor(expected, test["tensor"].get<std::string>());
    const auto vocab = static_cast<size_t>(model.spec.vocab_size);
    std::vector<float> got;
    for (const auto& position : test["positions"]) {
      const auto row = logits.begin() + static_cast<int64_t>(position.get<size_t>() * vocab);
      got.insert(got.end(), row, row + static_cast<int64_t>(vocab));
    }
    EXPECT_LE(max_abs_difference(got, wanted), 2e-4) << test["tensor"];
  }
}

}  // namespace
}  // namespace lariat::test
