// route, grouped_linear and combine_experts on the CUDA backend: the cases that every backend has to pass,
// and steps that are recorded with one routing and replayed with others.
#include "kernels/error.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/experts_cases.h"

namespace lariat::test {
namespace {

using CudaRoute = OnCudaWith<RouteCase>;
TEST_P(CudaRoute, MatchesTheReference) {
  for (const int64_t gap : {0, 3}) check_route(*cuda_, reference_, GetParam(), gap);
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaRoute, testing::ValuesIn(route_cases()));

using CudaExperts = OnCuda;
TEST_F(CudaExperts, TheFirstOfEquals) { check_route_ties(*cuda_); }
TEST_F(CudaExperts, RouteOddities) { check_route_oddities(*cuda_); }
TEST_F(CudaExperts, SaysHowManyExpertsItCanHave) {
  EXPECT_THROW(route_one(*cuda_, std::vector<float>(513), {.n_chosen = 2}), Error);
}
TEST_F(CudaExperts, NanReachesItsRowAndNothingElse) {
  check_grouped_linear_nan(*cuda_, DType::kF32, DType::kF32);
  check_grouped_linear_nan(*cuda_, DType::kBF16, DType::kBF16);
}
TEST_F(CudaExperts, MoreRowsThanAreLookedThroughAtATime) {
  check_grouped_linear(*cuda_, reference_, DType::kF16, DType::kF32, {700, 3, 2, 9, 16});
}

using CudaExpertShapes = OnCudaWith<ExpertShape>;
TEST_P(CudaExpertShapes, MatchTheReference) {
  for (const DType weights : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      check_grouped_linear(*cuda_, reference_, weights, compute, GetParam());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaExpertShapes, testing::ValuesIn(expert_shapes()));

using CudaCombine = OnCudaWith<CombineCase>;
TEST_P(CudaCombine, MatchesTheReference) {
  for (const bool add : {false, true}) check_combine(*cuda_, reference_, GetParam(), add);
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaCombine, testing::ValuesIn(combine_cases()));

// Two layers of experts without attention, as a step has them.
class ExpertLayers {
 public:
  ExpertLayers(Backend& backend, int64_t tokens)
      : backend_(backend),
        x_(backend, tokens, kDim),
        logits_(backend, tokens, kExperts),
        gate_(backend, tokens * kChosen, kInner),
        up_(backend, tokens * kChosen, kInner),
        down_(backend, tokens * kChosen, kDim),
        routed_(backend, tokens, kChosen),
        router_(backend, Rng(1).normals(kExperts * kDim), kExperts, kDim) {
    for (uint64_t e = 0; e < 3 * kExperts; ++e) {
      const bool is_down = e >= 2 * kExperts;
      experts_.emplace_back(backend, Rng(10 + e).normals(kInner * kDim, 0.2F), is_down ? kDim : kInner,
                            is_down ? kInner : kDim);
    }
  }

  // Other tokens, and so other experts, for each seed.
  std::vector<float> step(uint64_t seed) {
    const std::vector<float> input = Rng(seed).normals(x_.view().rows * kDim);
    backend_.copy_in(x_.view().data, input.data(), input.size() * sizeof(float));
    for (int layer = 0; layer < 2; ++layer) {
      multiply(backend_, x_.view(), router_.view(), {}, DType::kF32, logits_.view());
      backend_.route(logits_.view(), RouteCase{.n_chosen = kChosen, .normalise = true}.router({}), routing());
      backend_.grouped_linear(x_.view(), experts(0), routing(), gate_.view());
      backend_.grouped_linear(x_.view(), experts(1), routing(), up_.view());
      backend_.glu(gate_.view(), up_.view(), Activation::kSilu, gate_.view());
      backend_.grouped_linear(gate_.view(), experts(2), routing(), down_.view());
      backend_.combine_experts(down_.view(), routing(), true, x_.view());
    }
    return x_.values();
  }
  std::vector<int32_t> chosen() const { return routed_.experts(); }

 private:
  static constexpr int64_t kDim = 24, kInner = 40, kExperts = 9, kChosen = 2;
  Routing routing() const { return routed_.view(); }
  // Gate, up or down of all experts.
  Weight experts(size_t which) const {
    Weight weight;
    for (size_t e = 0; e < kExperts; ++e)
      weight.blocks.push_back({experts_[which * kExperts + e].view(), {}});
    return weight;
  }

  Backend& backend_;
  Tensor x_, logits_, gate_, up_, down_;
  Routed routed_;
  Tensor router_;
  std::vector<Tensor> experts_;
};

TEST_F(CudaExperts, ARecordedStepFollowsTheRouting) {
  for (const int64_t tokens : {1, 7}) {
    ExpertLayers tested(*cuda_, tokens), expected(reference_, tokens);
    const auto counts = [&] { return dynamic_cast<CudaBackend&>(*cuda_).step_counts(); };
    const int64_t before = counts().replayed;
    std::set<std::vector<int32_t>> routings;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      expect_close(tested.step(seed), expected.step(seed), 1e-4, 1e-5, "step " + std::to_string(seed));
      EXPECT_EQ(tested.chosen(), expected.chosen());
      routings.insert(tested.chosen());
    }
    EXPECT_EQ(counts().replayed - before, 6);  // the first runs as it is, the second is recorded
    EXPECT_GT(routings.size(), 2U);
  }
}

}  // namespace
}  // namespace lariat::test
