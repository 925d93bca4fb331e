// Scalings below, at and beyond the original length vs one-shot transformers (golden/rope/logits.json).
#include "engine/rope_options.h"
#include "models/io/json_file.h"
#include "models/load/config.h"
#include "models/positions/parse_position_method.h"
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

// Up to the trained length a scaling that follows the length, and Jet-Long, change no bit: in prefill and
// decode.
TEST(RopeLogits, InsideTheTrainedLengthNothingChanges) {
  const auto dir = source_dir() / "configs" / "demo";
  CpuBackend backend(2);
  const Model model = load_model(dir, load_config(dir), backend, std::nullopt);
  const int64_t trained = model.spec.rope().max_position_embeddings;
  ASSERT_EQ(trained, 512);
  const std::vector<int32_t> tokens = some_tokens(static_cast<size_t>(trained), model.spec.vocab_size);
  const auto logits = [&](const char* scaling, double factor, const char* method) {
    SessionOptions options;
    RopeOptions rope{.scaling = scaling};
    if (factor > 0) rope.factor = factor;
    options.rope = resolve_rope(model.spec.rope(), rope);
    if (*method != 0) options.positions = parse_position_method(method, trained, 8 * trained);
    Session session(model, backend, options);
    Sequence sequence = session.new_sequence();
    std::vector<float> rows;
    for (size_t first = 0, n = tokens.size() - 32; first < tokens.size(); first += n, n = 1) {
      const auto row = to_host(backend, forward(session, {&sequence, std::span(tokens).subspan(first, n)}));
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  };
  const std::vector<float> plain = logits("none", 0, "");
  for (const char* scaling : {"dynamic", "dynamic-yarn", "dynamic-yarn-radix"})
    EXPECT_EQ(logits(scaling, 0, ""), plain) << scaling;
  for (const char* method : {"jet-long", "jet-long-freq"})
    EXPECT_EQ(logits("none", 0, method), plain) << method;
  EXPECT_GT(max_abs_difference(logits("yarn", 4, ""), plain), 0.01) << "a static scaling does";
}

}  // namespace
}  // namespace lariat::test
