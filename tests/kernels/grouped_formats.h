#pragma once
#include "tests/kernels/experts_cases.h"
#include "tests/kernels/grouping_cases.h"

namespace lariat::test {

inline std::vector<float> run_grouped_format(Backend& backend, const WeightFormat& format,
                                             const ExpertProblem& problem) {
  const ExpertShape& s = problem.shape;
  std::vector<HostWeight> host;
  for (int64_t e = 0; e < s.n_experts; ++e)
    host.push_back(random_codes(format, s.n, s.k, static_cast<uint64_t>(e + 1)));
  const std::vector<WeightFormat> formats(host.size(), format);
  LoadedWeight loaded = backend.load_weight(host, formats, DType::kF32);
  const Tensor biases(backend, problem.biases, s.n_experts, s.n);
  loaded.weight.biases = biases.view();
  const Tensor rows(backend, problem.x, problem.x_rows(), s.k, DType::kF32, s.gap);
  const Routed routed(backend, problem.chosen, std::vector<float>(problem.chosen.size(), 1.0F), s.tokens);
  const Tensor out(backend, s.tokens * s.n_chosen, s.n, s.gap);
  backend.grouped_linear(rows.view(), loaded.weight, routed.view(), out.view());
  return out.values();
}

// Few and many rows per expert, more and fewer experts than rows, more inputs than warps prefetch. more:
// error bound relative to f32 sums. bits: of activations.
inline void check_grouped_formats(Backend& tested, Backend& reference, const WeightFormat& format,
                                  double more = 1, int bits = 8) {
  tested.use_activations(bits);
  reference.use_activations(bits);
  for (const ExpertShape& s : {ExpertShape{1, 1, 1, 1, 1},
                               {1, 3, 2, 18, 2100, false},
                               {5, 6, 2, 17, 100, true, 3},
                               {15, 3, 2, 40, 290},
                               {19, 2, 1, 33, 137, false, 2},
                               {1, 300, 20, 3, 40}}) {
    ExpertProblem problem(DType::kF32, DType::kF32, s);
    problem.biases = Rng(62).normals(s.n_experts * s.n);
    const std::vector<float> actual = run_grouped_format(tested, format, problem),
                             expected = run_grouped_format(reference, format, problem);
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / s.n;
      const float* const x = problem.x.data() + problem.x_row(row) * s.k;
      const double tolerance = bits == 8 ? sum_tolerance(x, s.k) : wide_tolerance(x, s.k);
      ASSERT_NEAR(actual[i], expected[i], more * tolerance + 1e-6)
          << s.tokens << " tokens, " << s.n_chosen << " of " << s.n_experts << " experts, n " << s.n << " k "
          << s.k << ": row " << row << " column " << static_cast<int64_t>(i) % s.n;
    }
  }
}

}  // namespace lariat::test
