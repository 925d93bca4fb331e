#pragma once
#include <algorithm>
#include <numeric>
#include <ostream>
#include <set>

#include "kernels/quant.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {

class Routed {
 public:
  Routed(Backend& backend, int64_t tokens, int64_t n_chosen)
      : backend_(backend),
        experts_(backend.allocate(static_cast<size_t>(tokens * n_chosen) * sizeof(int32_t))),
        weights_(backend, tokens, n_chosen) {}
  Routed(Backend& backend, const std::vector<int32_t>& experts, const std::vector<float>& weights,
         int64_t tokens)
      : Routed(backend, tokens, static_cast<int64_t>(experts.size()) / tokens) {
    backend.copy_in(experts_.data(), experts.data(), experts.size() * sizeof(int32_t));
    weights_ = Tensor(backend, weights, tokens, static_cast<int64_t>(experts.size()) / tokens);
  }

  Routing view() const { return {static_cast<int32_t*>(experts_.data()), weights_.view()}; }
  std::vector<float> weights() const { return weights_.values(); }
  std::vector<int32_t> experts() const {
    std::vector<int32_t> result(experts_.bytes() / sizeof(int32_t));
    backend_.copy_out(result.data(), experts_.data(), experts_.bytes());
    return result;
  }

 private:
  Backend& backend_;
  Buffer experts_;
  Tensor weights_;
};

struct RouteCase {
  int64_t tokens = 1, n_experts = 1, n_chosen = 1;
  bool sigmoid = false, bias = false;
  int64_t n_groups = 1, kept_groups = 1;
  bool normalise = false;
  float scale = 1.0F;

  Router router(const Matrix& choice_bias) const {
    return {n_chosen, sigmoid, choice_bias, n_groups, kept_groups, normalise, scale};
  }
};

inline void PrintTo(const RouteCase& c, std::ostream* out) {
  *out << c.tokens << " tokens, " << c.n_chosen << " of " << c.n_experts << " experts, " << c.kept_groups
       << " of " << c.n_groups << " groups" << (c.sigmoid ? ", sigmoid" : "") << (c.bias ? ", bias" : "")
       << (c.normalise ? ", normalised" : "") << ", times " << c.scale;
}

inline std::vector<RouteCase> route_cases() {
  return {
      {.tokens = 1, .n_experts = 1, .n_chosen = 1},
      {.tokens = 3, .n_experts = 1, .n_chosen = 1, .sigmoid = true, .normalise = true, .scale = 2.5F},
      {.tokens = 2, .n_experts = 3, .n_chosen = 3},
      {.tokens = 7, .n_experts = 8, .n_chosen = 2, .normalise = true},  // Mixtral
      {.tokens = 9, .n_experts = 33, .n_chosen = 5, .sigmoid = true},
      {.tokens = 5, .n_experts = 31, .n_chosen = 31, .scale = 0.5F},
      {.tokens = 4, .n_experts = 64, .n_chosen = 6, .scale = 16.0F},       // DeepSeek-V2-Lite
      {.tokens = 40, .n_experts = 128, .n_chosen = 8, .normalise = true},  // Qwen3-MoE
      {.tokens = 3, .n_experts = 160, .n_chosen = 6, .n_groups = 8, .kept_groups = 3, .scale = 16.0F},
      {.tokens = 6, .n_experts = 24, .n_chosen = 2, .sigmoid = true, .n_groups = 4, .kept_groups = 1},
      {.tokens = 5, .n_experts = 12, .n_chosen = 3, .bias = true, .n_groups = 6, .kept_groups = 2},
      {.tokens = 5, .n_experts = 40, .n_chosen = 4, .sigmoid = true, .bias = true, .normalise = true},
      {.tokens = 6, .n_experts = 7, .n_chosen = 3, .bias = true, .n_groups = 7, .kept_groups = 5},
      {.tokens = 4,
       .n_experts = 256,
       .n_chosen = 8,
       .sigmoid = true,
       .bias = true,
       .n_groups = 8,
       .kept_groups = 4,
       .normalise = true,
       .scale = 2.5F},  // DeepSeek-V3
      {.tokens = 2, .n_experts = 512, .n_chosen = 32, .normalise = true},
  };
}

// Differences exceed f32 rounding.
inline bool far_apart(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] - values[i - 1] < 4e-6) return false;
  }
  return true;
}

// Logits without bias are shuffled and evenly spaced; with bias they are redrawn until the sums are far
// apart, also the sums of the two best per group.
inline std::vector<float> apart_logits(const RouteCase& c, const std::vector<float>& bias, Rng& rng) {
  const auto n = static_cast<size_t>(c.n_experts), size = n / static_cast<size_t>(c.n_groups);
  std::vector<float> logits(n);
  if (bias.empty()) {
    for (size_t e = 0; e < n; ++e) logits[e] = 0.03125F * static_cast<float>(e) - 3.0F;
    for (size_t e = n; e > 1; --e) std::swap(logits[e - 1], logits[rng.next() % e]);
    return logits;
  }
  for (bool apart = false; !apart;) {
    logits = rng.normals(c.n_experts, 1.5F);
    std::vector<double> choice(n), groups;
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    for (size_t e = 0; e < n; ++e) {
      const double power = std::exp(static_cast<double>(logits[e]));
      choice[e] = power / (c.sigmoid ? 1 + power : sum) + bias[e];
    }
    for (size_t g = 0; g < n; g += size) {
      std::vector<double> group(&choice[g], &choice[g] + size);
      std::sort(group.rbegin(), group.rend());
      groups.push_back(size == 1 ? group[0] : group[0] + group[1]);
    }
    apart = far_apart(choice) && far_apart(groups);
  }
  return logits;
}

inline void check_route(Backend& tested, Backend& reference, const RouteCase& c, int64_t gap) {
  Rng rng(51);
  const std::vector<float> bias = c.bias ? rng.normals(c.n_experts, 0.2F) : std::vector<float>();
  std::vector<float> logits;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const std::vector<float> row = apart_logits(c, bias, rng);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  const auto run = [&](Backend& backend) {
    const Tensor rows(backend, logits, c.tokens, c.n_experts, DType::kF32, gap);
    const Tensor b = bias.empty() ? Tensor() : Tensor(backend, bias, 1, c.n_experts);
    const Routed routed(backend, c.tokens, c.n_chosen);
    backend.route(rows.view(), c.router(b.view()), routed.view());
    return std::pair(routed.experts(), routed.weights());
  };
  const auto [experts, weights] = run(tested);
  const auto [expected_experts, expected_weights] = run(reference);
  EXPECT_EQ(experts, expected_experts);
  // exp(x) in f32 is as exact as x <= 16: 2^-21. The rest is a few roundings.
  expect_close(weights, expected_weights, 0, 0x1p-20, "weights");
}

inline std::pair<std::vector<int32_t>, std::vector<float>> route_one(Backend& backend,
                                                                     const std::vector<float>& logits,
                                                                     const RouteCase& c,
                                                                     const std::vector<float>& bias = {}) {
  const auto n = static_cast<int64_t>(logits.size());
  const Tensor row(backend, logits, 1, n), b = bias.empty() ? Tensor() : Tensor(backend, bias, 1, n);
  const Routed routed(backend, 1, c.n_chosen);
  backend.route(row.view(), c.router(b.view()), routed.view());
  return {routed.experts(), routed.weights()};
}

inline void check_route_ties(Backend& tested) {
  using Ids = std::vector<int32_t>;
  const auto experts = [&](const std::vector<float>& logits, const RouteCase& router,
                           const std::vector<float>& bias = {}) {
    return route_one(tested, logits, router, bias).first;
  };
  for (const bool sigmoid : {false, true}) {
    EXPECT_EQ(experts(std::vector<float>(70, 0.25F), {.n_chosen = 4, .sigmoid = sigmoid}), (Ids{0, 1, 2, 3}));
    std::vector<float> pairs(70, -1.0F);
    pairs[69] = pairs[33] = 2.0F;  // other lanes and warps
    pairs[5] = pairs[64] = 1.0F;
    EXPECT_EQ(experts(pairs, {.n_chosen = 5, .sigmoid = sigmoid}), (Ids{33, 69, 5, 64, 0}));
    EXPECT_EQ(experts({0.0F, -0.0F, 0.0F}, {.n_chosen = 2, .sigmoid = sigmoid}), (Ids{0, 1}));
    EXPECT_EQ(experts({-0.0F, 0.0F, -0.0F}, {.n_chosen = 2, .sigmoid = sigmoid}), (Ids{0, 1}));
    // Groups {1, 3}, {3, 2}, {0, 3}: equal best values; the middle group wins by the sum of two.
    const std::vector<float> groups = {1, 3, 3, 2, 0, 3};
    const RouteCase router{.n_chosen = 3, .sigmoid = sigmoid, .n_groups = 3, .kept_groups = 2};
    EXPECT_EQ(experts(groups, router), (Ids{1, 2, 3}));
    EXPECT_EQ(experts(groups, {.n_chosen = 2, .sigmoid = sigmoid, .n_groups = 3, .kept_groups = 1},
                      std::vector<float>(6, 0.5F)),
              (Ids{2, 3}));
    EXPECT_EQ(experts({1, 1, 1, 1}, {.n_chosen = 2, .sigmoid = sigmoid, .n_groups = 2, .kept_groups = 1},
                      {0.5F, 0.25F, 0.25F, 0.5F}),
              (Ids{0, 1}));
  }
}

inline void check_route_oddities(Backend& tested) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows(8, Rng(3).normals(64));
  rows[0] = std::vector<float>(64, kNan);
  rows[1] = std::vector<float>(64, -kInf);
  rows[2] = std::vector<float>(64, kInf);
  rows[3][7] = kNan;
  rows[4][9] = kInf;
  rows[5] = std::vector<float>(64, -kInf);
  rows[5][63] = 1.0F;
  rows[6][20] = 3e38F;
  for (float& logit : rows[7]) logit *= 1e30F;
  const std::vector<RouteCase> routers = {
      {.n_chosen = 6},
      {.n_chosen = 6, .sigmoid = true, .normalise = true},
      {.n_chosen = 8, .n_groups = 16, .kept_groups = 2},  // every expert of the kept groups
  };
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const RouteCase& router : routers) {
      for (const bool bias : {false, true}) {
        std::vector<float> values = Rng(4).normals(64);
        values[0] = kNan;
        values[1] = kInf;
        values[2] = -kInf;
        const auto [experts, weights] =
            route_one(tested, rows[r], router, bias ? values : std::vector<float>());
        const std::set<int32_t> different(experts.begin(), experts.end());
        EXPECT_EQ(different.size(), experts.size()) << r;
        EXPECT_TRUE(*different.begin() >= 0 && *different.rbegin() < 64) << r;
        // NaN must show, and nothing may overflow unnecessarily.
        if (router.sigmoid || bias) continue;
        EXPECT_EQ(std::isnan(weights[0]), r <= 4) << r;
        if (r >= 5) {
          EXPECT_FLOAT_EQ(weights[0], 1.0F) << r;
        }
      }
    }
  }
  EXPECT_EQ(route_one(tested, rows[5], {.n_chosen = 2}).first, (std::vector<int32_t>{63, 0}));
}

struct ExpertShape {
  int64_t tokens, n_experts, n_chosen, n, k;
  bool shared = true;  // one row of x per token, else per choice
  int64_t gap = 0;
};

inline std::vector<ExpertShape> expert_shapes() {
  return {
      {1, 1, 1, 1, 1},
      {1, 4, 2, 3, 31},
      {1, 8, 8, 72, 100},
      {1, 8, 8, 100, 72, false},
      {2, 3, 1, 17, 40, true, 4},
      {5, 64, 6, 33, 257, true, 3},
      {5, 64, 6, 257, 33, false, 3},
      {8, 2, 2, 40, 64, false, 8},
      {31, 7, 3, 19, 130},
      {31, 7, 3, 130, 19, false},
      {70, 5, 2, 24, 72, true, 8},
      {1, 300, 40, 5, 8},   // more experts than a launch has pointers
      {10, 300, 40, 5, 8},  // fewer experts than rows
      {3, 16, 4, 96, 1032},
  };
}

// Low experts are chosen more often: some have many rows, some none.
struct ExpertProblem {
  DType weights, compute;
  ExpertShape shape;
  std::vector<float> x, w, biases;  // biases: [experts, n], or none
  std::vector<int32_t> chosen;

  ExpertProblem(DType weights_, DType compute_, const ExpertShape& s)
      : weights(weights_), compute(compute_), shape(s) {
    Rng rng(61);
    x = rng.normals(x_rows() * s.k);
    w = rng.normals(s.n_experts * s.n * s.k);
    for (float& value : w) value = rounded_to(weights, value);
    for (int64_t t = 0; t < s.tokens; ++t) {
      std::vector<int32_t> order;
      while (static_cast<int64_t>(order.size()) < s.n_chosen) {
        const double u = rng.uniform();
        const auto e = static_cast<int32_t>(u * u * static_cast<double>(s.n_experts));
        if (std::find(order.begin(), order.end(), e) == order.end()) order.push_back(e);
      }
      chosen.insert(chosen.end(), order.begin(), order.end());
    }
  }

  int64_t x_rows() const { return shape.shared ? shape.tokens : shape.tokens * shape.n_chosen; }
  int64_t x_row(int64_t row) const { return shape.shared ? row / shape.n_chosen : row; }

  std::vector<Loaded> load(Backend& backend, std::vector<Tensor>& hosts) const {
    std::vector<Loaded> experts;
    const int64_t size = shape.n * shape.k;
    const DType stored = is_quantized(weights) ? DType::kF32 : weights;
    const bool loads = is_quantized(weights) || backend.traits().copies_bf16;
    for (int64_t e = 0; e < shape.n_experts; ++e) {
      hosts.emplace_back(backend, std::vector<float>(w.begin() + e * size, w.begin() + (e + 1) * size),
                         shape.n, shape.k, stored, shape.gap);
      experts.push_back(loads ? load_one(backend, hosts.back().view(), weights, compute)
                              : Loaded{hosts.back().view(), Buffer()});
    }
    return experts;
  }

  std::vector<float> run(Backend& backend) const {
    std::vector<Tensor> hosts;
    const std::vector<Loaded> loaded = load(backend, hosts);
    Weight experts{{}, compute};
    for (const Loaded& each : loaded) experts.blocks.push_back({each.matrix, {}});
    const Tensor rows(backend, x, x_rows(), shape.k, DType::kF32, shape.gap);
    const std::vector<float> nothing(static_cast<size_t>(shape.n_experts * shape.n));
    const Tensor bias_rows(backend, biases.empty() ? nothing : biases, shape.n_experts, shape.n);
    if (!biases.empty()) experts.biases = bias_rows.view();
    const Routed routed(backend, chosen, std::vector<float>(chosen.size(), 1.0F), shape.tokens);
    const Tensor out(backend, shape.tokens * shape.n_chosen, shape.n, shape.gap);
    backend.grouped_linear(rows.view(), experts, routed.view(), out.view());
    return out.values();
  }

  // Eight standard deviations of f32 accumulation, as in linear_cases.h. Quantized: a group's sum is exact;
  // values differ from w by at most half a step of 1/8 of the largest.
  double tolerance(int64_t row, int64_t o) const {
    const float* const rows = x.data() + x_row(row) * shape.k;
    const float* const weight = w.data() + (chosen[static_cast<size_t>(row)] * shape.n + o) * shape.k;
    double magnitude = 0;
    for (int64_t i = 0; i < shape.k; ++i) {
      magnitude +=
          std::abs(static_cast<double>(rows[i])) * (std::abs(weight[i]) + (is_quantized(weights) ? 0.3 : 0));
    }
    return 8 * 0x1p-24 * magnitude;
  }
};

inline void check_grouped_linear(Backend& tested, Backend& reference, DType weights, DType compute,
                                 const ExpertShape& s) {
  SCOPED_TRACE(testing::Message() << name_of(weights) << " weights, computed in " << name_of(compute) << ": "
                                  << s.tokens << " tokens, " << s.n_chosen << " of " << s.n_experts
                                  << " experts, n " << s.n << " k " << s.k << " gap " << s.gap
                                  << (s.shared ? ", shared" : ""));
  const ExpertProblem problem(weights, compute, s);
  const std::vector<float> actual = problem.run(tested), expected = problem.run(reference);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / s.n, o = static_cast<int64_t>(i) % s.n;
    ASSERT_NEAR(actual[i], expected[i], problem.tolerance(row, o)) << "row " << row << " column " << o;
  }
}

inline void check_grouped_biases(Backend& tested, DType weights, DType compute) {
  for (const ExpertShape& s : {ExpertShape{3, 5, 2, 17, 40}, {60, 3, 2, 33, 64, false}, {1, 300, 40, 5, 8}}) {
    ExpertProblem problem(weights, compute, s);
    std::vector<float> expected = problem.run(tested);
    problem.biases = Rng(62).normals(s.n_experts * s.n);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto n = static_cast<size_t>(s.n), expert = static_cast<size_t>(problem.chosen[i / n]);
      expected[i] += problem.biases[expert * n + i % n];
    }
    expect_close(problem.run(tested), expected, 0, 0, "biases");
  }
}

inline void check_grouped_linear_nan(Backend& tested, DType weights, DType compute) {
  ExpertProblem problem(weights, compute, {30, 3, 2, 20, 71, false});
  problem.x[2 * 71 - 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = problem.run(tested);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 20 == 1) << i;
}

struct CombineCase {
  int64_t tokens, n_chosen, cols;
  int64_t gap = 0;
  bool shared = false;
};

inline void PrintTo(const CombineCase& c, std::ostream* out) {
  *out << c.tokens << " tokens, " << c.n_chosen << " experts, " << c.cols << " columns, gap " << c.gap
       << (c.shared ? ", shared" : "");
}

inline std::vector<CombineCase> combine_cases() {
  return {{1, 1, 1},        {1, 8, 2048},       {3, 2, 17, 3},       {2, 6, 257},           {5, 32, 64},
          {70, 4, 1025, 1}, {1, 1, 1, 0, true}, {3, 2, 17, 3, true}, {70, 4, 1025, 1, true}};
}

inline void check_combine(Backend& tested, Backend& reference, const CombineCase& c, bool add) {
  Rng rng(71);
  const int64_t choices = c.tokens * c.n_chosen;
  const std::vector<float> x = rng.normals(choices * c.cols), weights = rng.normals(choices);
  const std::vector<float> before = rng.normals(c.tokens * c.cols);
  std::vector<float> logits = rng.normals(2 * c.tokens, 3.0F);
  logits[0] = -200.0F;
  logits.back() = 200.0F;
  const auto run = [&](Backend& backend) {
    const Tensor rows(backend, x, choices, c.cols, DType::kF32, c.gap);
    const Routed routed(backend, std::vector<int32_t>(static_cast<size_t>(choices), 0), weights, c.tokens);
    const Tensor out = add ? Tensor(backend, before, c.tokens, c.cols, DType::kF32, c.gap)
                           : Tensor(backend, c.tokens, c.cols, c.gap);  // NaN must not be added
    const Tensor shared(backend, logits, c.tokens, 2);
    Routing routing = routed.view();
    if (c.shared) routing.shared_logits = shared.view().column_range(c.tokens == 1 ? 0 : 1, 1);
    backend.combine_experts(rows.view(), routing, add, out.view());
    return out.values();
  };
  // n_chosen roundings of a sum of size sqrt(n_chosen).
  const double tolerance = 8 * 0x1p-24 * static_cast<double>(c.n_chosen + 1);
  expect_close(run(tested), run(reference), tolerance, 0, add ? "added" : "alone");
}

}  // namespace lariat::test
