#include "engine/runtime/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"

namespace lariat::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// softmax: 0.6, 0.3, 0.1
const std::array<float, 3> kLogits = {std::log(0.6F), std::log(0.3F), std::log(0.1F)};

class HostSampler {
 public:
  explicit HostSampler(const SamplerOptions& options) : options_(options), sampler_(options, cpu_) {}
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history) {
    std::vector<float> copy(logits.begin(), logits.end());
    const Matrix row(copy.data(), DType::kF32, 1, static_cast<int64_t>(copy.size()));
    const double uniform = sampler_.prepare(row, history);
    const Sampling how = options_;
    cpu_.draw(row, {&how, 1}, {&uniform, 1});
    int32_t drawn = 0;
    cpu_.read_drawn({&drawn, 1});
    return Sampler::checked(drawn);
  }

 private:
  CpuBackend cpu_{1};
  SamplerOptions options_;
  Sampler sampler_;
};

std::map<int32_t, int> histogram(SamplerOptions options, int draws) {
  options.temperature = options.temperature > 0 ? options.temperature : 1.0F;
  HostSampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.sample(kLogits, {})];
  return counts;
}

TEST(Sampler, NonFiniteLogitsAreAnError) {
  HostSampler sampler({});
  EXPECT_THROW(sampler.sample(std::array{kNan, kNan}, {}), Error);
  EXPECT_THROW(sampler.sample(std::array{-kInf, -kInf}, {}), Error);
  EXPECT_THROW(sampler.sample(std::array{1.0F, kInf}, {}), Error);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  SamplerOptions options;
  options.temperature = 0.5F;  // squared, normalised: 0.36 / 0.46
  EXPECT_NEAR(histogram(options, 100000).at(0) / 1e5, 0.36 / 0.46, 0.005);
}

TEST(Sampler, TopKTopPAndMinPCut) {
  SamplerOptions options;
  options.top_k = 2;
  EXPECT_EQ(histogram(options, 1000).count(2), 0U);
  options = {};
  options.top_p = 0.59F;  // the first token reaches it
  EXPECT_EQ(histogram(options, 1000).size(), 1U);
  options.top_p = 0.61F;
  EXPECT_EQ(histogram(options, 1000).size(), 2U);
  options = {};
  options.min_p = 0.4F;  // relative to the largest, 0.24
  EXPECT_EQ(histogram(options, 1000).size(), 2U);
}

TEST(Sampler, PenaltyLowersSeenTokensOnce) {
  SamplerOptions options;
  options.repetition_penalty = 2.0F;
  HostSampler sampler(options);
  EXPECT_EQ(sampler.sample(std::array{3.0F, 2.0F}, std::array<int32_t, 3>{0, 0, 0}), 1);  // 1.5 < 2
  EXPECT_EQ(sampler.sample(std::array{-1.0F, -1.5F}, std::array<int32_t, 1>{0}), 1);      // -2 < -1.5
  EXPECT_EQ(sampler.sample(std::array{5.0F, 2.0F}, std::array<int32_t, 2>{0, 0}), 0);     // 2.5 > 2
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  SamplerOptions options;
  options.temperature = 1.0F;
  options.seed = 42;
  HostSampler a(options), b(options);
  options.seed = 43;
  HostSampler c(options);
  int different = 0;
  for (int i = 0; i < 200; ++i) {
    const int32_t token = a.sample(kLogits, {});
    EXPECT_EQ(token, b.sample(kLogits, {}));
    different += token != c.sample(kLogits, {}) ? 1 : 0;
  }
  EXPECT_GT(different, 50);
}

}  // namespace
}  // namespace lariat::test
