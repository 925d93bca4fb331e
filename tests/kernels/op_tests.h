#pragma once
#include <functional>

#include "tests/kernels/op_cases.h"

// Checks of every op, for every backend; for products and attention only some laws.
namespace lariat::test {

struct OpTest {
  std::string name;
  std::function<void(Backend& tested, Backend& reference)> run;
  bool law = false;  // holds for the reference too
};

inline void PrintTo(const OpTest& test, std::ostream* out) { *out << test.name; }

class OpTests {
 public:
  template <class Case, class Check>
  void add_cases(const std::string& op, const std::vector<Case>& cases, const Check& check,
                 bool law = false) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      const auto run = [c, check](Backend& tested, Backend& reference) {
        SCOPED_TRACE(testing::PrintToString(c));
        check(tested, reference, c);
      };
      tests.push_back({op + "_" + std::to_string(i), run, law});
    }
  }
  void add(const std::string& name, void (*check)(Backend& tested, Backend& reference)) {
    tests.push_back({name, check});
  }
  void add_law(const std::string& name, void (*check)(Backend& backend)) {
    tests.push_back({name, [check](Backend& tested, Backend&) { check(tested); }, true});
  }

  std::vector<OpTest> tests;
};

inline void check_rotations_compose(Backend& backend) {
  for (bool interleaved : {false, true}) {
    for (int64_t rotary_dim : {64, 24, 20}) check_composition(backend, interleaved, rotary_dim);
    check_isometry(backend, interleaved);
    check_one_saturated_key(backend);
  }
}

inline std::vector<OpTest> op_tests() {
  OpTests all;
  const std::vector<RowCase> rows = row_cases(), one_size = {{2, 515}};
  all.add_cases("Embed", rows, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (float scale : {1.0F, 45.25483F}) check_embed(tested, reference, c, scale);
  });
  all.add_cases(
      "EmbedOfManyTokens", std::vector<RowCase>{{600, 5, DType::kBF16, 0}},
      [](Backend& tested, Backend& reference, const RowCase& c) { check_embed(tested, reference, c); });
  all.add_cases("Norm", rows, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (NormKind kind : kNormKinds) {
      for (float scale : {1.0F, 1e-4F, 1e4F}) check_norm(tested, reference, c, kind, scale);
      for (float scale : {1.0F, 0.22F}) check_add_norm(tested, reference, c, kind, scale);
    }
  });
  // Activations as large as some residual streams, or so tiny that eps dominates.
  all.add_cases("NormSizes", one_size, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (NormKind kind : kNormKinds) {
      for (float scale : {1e-8F, 1e12F}) check_norm(tested, reference, c, kind, scale);
    }
    check_norm_large_mean(tested, reference);
  });
  all.add_cases("Glu", rows, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (float scale : {3.0F, 50.0F}) check_glu(tested, reference, c, scale);
    for (float scale : {1e-20F, 1e-3F, 0.3F, 3.0F, 1e4F}) check_xielu(tested, reference, c, scale);
  });
  all.add_cases("GluSizes", one_size, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (float scale : {1e-20F, 40.0F, 1e4F}) check_glu(tested, reference, c, scale);
    check_gelu_range(tested, reference);
    check_clamped(tested);
  });
  all.add_cases("SoftCap", rows, [](Backend& tested, Backend& reference, const RowCase& c) {
    check_soft_cap(tested, reference, c, 0.125F, 0.0F);
    check_soft_cap(tested, reference, c, 1.0F, 30.0F);
  });
  all.add_law("SoftCapOddities", check_soft_cap_oddities);
  all.add_cases("TokenNll", rows, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (float scale : {4.0F, 40.0F}) check_token_nll(tested, reference, c, scale);
  });
  all.add_cases("TokenNllSizes", one_size, [](Backend& tested, Backend& reference, const RowCase& c) {
    for (float scale : {0.0F, 1e-3F, 30.0F}) check_token_nll(tested, reference, c, scale);
    check_token_nll(tested, reference, {300, 11, DType::kF32, 0});  // more rows than a launch
  });
  all.add_law("TokenNllOddities", check_token_nll_oddities);
  all.add_cases("Draw", draw_cases(), check_draw);
  all.add_law("DrawDistribution", check_draw_distribution);
  all.add_law("DrawOddities", check_draw_oddities);
  all.add("EmbedOfDrawn", check_embed_of_drawn);
  all.add_cases("Route", route_cases(), [](Backend& tested, Backend& reference, const RouteCase& c) {
    for (int64_t gap : {0, 3}) check_route(tested, reference, c, gap);
  });
  all.add_law("RouteTies", check_route_ties);
  all.add_law("RouteOddities", check_route_oddities);
  all.add_cases("CombineExperts", combine_cases(),
                [](Backend& tested, Backend& reference, const CombineCase& c) {
                  for (bool add : {false, true}) check_combine(tested, reference, c, add);
                });
  all.add_law("AttentionIsRelative", check_attention_is_relative);
  all.add_law("AttentionWithoutRope", check_attention_without_rope);
  all.add_cases(
      "RopeTable", rope_table_cases(),
      [](Backend& tested, Backend&, const RopeTableCase& c) { check_rope_table(tested, c); }, true);
  all.add_law("RopeTableSplit", check_rope_table_split);
  all.add_law("RopeTableAxes", check_rope_table_axes);
  all.add_cases("QkvToCache", qkv_cases(), check_qkv_to_cache);
  all.add_law("ClipKeepsNaN", check_clip_keeps_nan);
  all.add_cases("RerotateKeys", rerotate_cases(), check_rerotate_keys);
  all.add_law("RotationsCompose", check_rotations_compose);
  return all.tests;
}

inline std::vector<OpTest> op_laws() {
  std::vector<OpTest> laws;
  for (OpTest& test : op_tests()) {
    if (test.law) laws.push_back(std::move(test));
  }
  return laws;
}

}  // namespace lariat::test
