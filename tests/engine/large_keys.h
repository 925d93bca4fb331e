#pragma once
#include "models/safetensors.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {

// The golden checkpoint llama_gqa in `dir` with keys `factor` times as large and queries as much smaller: the
// same model, as scores are products of the two. From 1e5 on most keys are beyond f16.
inline void write_large_keys(const std::filesystem::path& dir, float factor) {
  const std::filesystem::path from = checkpoint_dir("llama_gqa");
  std::filesystem::create_directories(dir);
  std::filesystem::copy_file(from / "config.json", dir / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const Checkpoint weights = Checkpoint::open(from);
  std::vector<NamedShape> shapes;
  for (const auto& [name, tensor] : weights.tensors()) shapes.push_back({name, tensor.shape});
  SafetensorsWriter writer(dir / "model.safetensors", shapes);
  for (const auto& [name, tensor] : weights.tensors()) {
    std::vector<float> values = float_tensor(weights, name);
    const bool key = name.find("k_proj") != std::string::npos,
               query = name.find("q_proj") != std::string::npos;
    for (float& value : values) value *= key ? factor : query ? 1.0F / factor : 1.0F;
    writer.append(values);
  }
  writer.finish();
}

// For how many of the golden tokens the likeliest next one is that of transformers.
inline int64_t golden_argmaxes(std::span<const float> logits) {
  const Checkpoint golden = Checkpoint::open_file(checkpoint_dir("llama_gqa") / "golden.safetensors");
  const std::vector<float> expected = float_tensor(golden, "logits");
  if (logits.size() != expected.size()) return -1;
  const size_t tokens = int_tensor(golden, "tokens").size(), vocab = logits.size() / tokens;
  const auto likeliest = [&](std::span<const float> of, size_t token) {
    const auto row = of.subspan(token * vocab, vocab);
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  int64_t equal = 0;
  for (size_t i = 0; i < tokens; ++i) equal += likeliest(logits, i) == likeliest(expected, i) ? 1 : 0;
  return equal;
}

}  // namespace lariat::test
