#pragma once
#include "engine/contexts/saved_context.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {

inline std::vector<int32_t> some_tokens(size_t n, int64_t vocab, uint64_t state = 7) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

inline SessionOptions scaled_session(const Model& model, const std::string& scaling, double factor = 0) {
  RopeOptions options;
  if (!scaling.empty()) options.scaling = scaling;
  if (factor > 0) options.factor = factor;
  if (!scaling.empty() && scaling != "none") options.original_ctx = 64;
  SessionOptions session = f32_session();
  session.rope = resolve_rope(model.spec.rope(), options);
  return session;
}

inline std::vector<float> decode_logits(Session& session, Sequence& sequence,
                                        std::span<const int32_t> tokens) {
  std::vector<float> all;
  for (const int32_t token : tokens) {
    const auto logits = decode(session, sequence, token);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

inline double relative_error(std::span<const float> got, std::span<const float> expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / size);
}

struct Change {
  const char* from;
  double from_factor;
  const char* to;
  double to_factor;
};
inline constexpr Change kScalingChanges[] = {
    {"yarn", 4, "dynamic-yarn", 0}, {"dynamic-yarn", 0, "yarn", 4}, {"none", 0, "yarn", 8},
    {"yarn", 4, "none", 0},         {"linear", 2, "dynamic", 0},    {"dynamic", 0, "dynamic-yarn", 0}};

}  // namespace lariat::test
