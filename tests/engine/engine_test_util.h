#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/rope_options.h"
#include "engine/runtime/session.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"
#include "models/files/safetensors.h"
#include "models/load/config.h"
#include "models/load/model.h"
#include "tests/engine/golden_checkpoints.h"
#include "tests/test_util.h"

// Golden checkpoints, opened in f32.
namespace lariat::test {

inline std::filesystem::path golden_dir() { return source_dir() / "tests" / "golden"; }
inline std::filesystem::path checkpoint_dir(const std::string& name) {
  return golden_dir() / "checkpoints" / name;
}

inline std::filesystem::path demo_dir() { return source_dir() / "configs" / "demo"; }

inline SessionOptions f32_session() {
  SessionOptions options;
  options.k_dtype = options.v_dtype = DType::kF32;
  return options;
}

inline Model open_f32(const std::filesystem::path& dir, Backend& backend, const RopeOptions& rope = {}) {
  ModelSpec spec = load_config(dir);
  spec.rope() = resolve_rope(spec.rope(), rope);
  return load_model(dir, spec, backend, DType::kF32);
}

class OnLlama : public FolderTest {
 protected:
  CpuBackend backend_{1};
  const std::filesystem::path model_dir_ = checkpoint_dir("llama_gqa");
  const Model model_ = open_f32(model_dir_, backend_);
};

template <class T>
std::vector<T> tensor_values(const Tensors& file, const std::string& name, const char* dtype) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr || tensor->dtype != dtype)
    throw Error(name + ": not a tensor of " + dtype + " in the golden file");
  std::vector<T> values(tensor->bytes / sizeof(T));
  std::memcpy(values.data(), tensor->data, tensor->bytes);
  return values;
}
inline std::vector<int32_t> int_tensor(const Tensors& file, const std::string& name) {
  const auto wide = tensor_values<int64_t>(file, name, "I64");
  return {wide.begin(), wide.end()};
}
inline std::vector<float> float_tensor(const Tensors& file, const std::string& name) {
  return tensor_values<float>(file, name, "F32");
}

// Tolerance between f32 runs that sum in different orders, e.g. chunked vs one-shot prefill. Each may differ
// from float64 by the 3.1e-5 of float32 transformers on the longest golden prompts.
inline constexpr double kSumOrderTolerance = 6.2e-5;

inline std::vector<float> prefill(Session& session, Sequence& sequence, std::span<const int32_t> tokens) {
  return to_host(session.backend(), forward(session, {&sequence, tokens}));
}
inline std::vector<float> decode(Session& session, Sequence& sequence, int32_t token) {
  return prefill(session, sequence, {&token, 1});
}
inline Matrix decode(Session& session, std::span<Sequence* const> sequences,
                     std::span<const int32_t> tokens) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < sequences.size(); ++i) prompts.push_back({sequences[i], tokens.subspan(i, 1)});
  return session.forward(prompts);
}

// [tokens.size(), vocab]: prefills the first `prefilled` tokens, decodes the rest. positions:
// Sequence::set_mrope_positions.
inline std::vector<float> all_logits(Session& session, std::span<const int32_t> tokens, size_t prefilled,
                                     std::span<const int32_t> positions = {}) {
  Sequence sequence = session.new_sequence();
  if (!positions.empty()) sequence.set_mrope_positions(positions);
  std::vector<float> all;
  forward(session, {&sequence, tokens.first(prefilled), 0}, [&](size_t, int64_t, const Matrix& logits) {
    const std::vector<float> rows = to_host(session.backend(), logits);
    all.insert(all.end(), rows.begin(), rows.end());
  });
  for (size_t i = prefilled; i < tokens.size(); ++i) {
    const auto logits = decode(session, sequence, tokens[i]);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Returns NaN for different sizes or any NaN, so that EXPECT_LE fails.
inline double max_abs_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return std::nan("");
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace lariat::test
