#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

std::vector<double> scores_of(const Matrix& logits, int64_t token, bool sigmoid) {
  std::vector<double> scores(static_cast<size_t>(logits.cols));
  double largest = -HUGE_VAL, sum = 0;
  for (int64_t e = 0; e < logits.cols; ++e) largest = std::max(largest, reference::get(logits, token, e));
  for (int64_t e = 0; e < logits.cols; ++e) {
    double& score = scores[static_cast<size_t>(e)];
    const double logit = reference::get(logits, token, e);
    score = sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logit - largest);
    sum += score;
  }
  if (!sigmoid) {
    for (double& score : scores) score /= sum;
  }
  return scores;
}

// Maps to a finite value: NaNs and sums of infinities would break a sort's order.
double in_order(double value) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return std::isnan(value) ? -kLargest : std::clamp(value, -kLargest, kLargest);
}

// Indices of the `count` largest values in descending order, ties by index.
std::vector<size_t> largest_of(const std::vector<double>& values, int64_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

void leave_groups(std::vector<double>& choice, const Router& router) {
  const size_t n_groups = static_cast<size_t>(router.n_groups), size = choice.size() / n_groups;
  std::vector<double> best;
  for (size_t g = 0; g < n_groups; ++g) {
    std::vector<double> group(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                              choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(group.begin(), group.end(), std::greater<>());
    best.push_back(router.choice_bias && size > 1 ? group[0] + group[1] : group[0]);
  }
  std::vector<bool> kept(n_groups, false);
  for (const size_t g : largest_of(best, router.kept_groups)) kept[g] = true;
  for (size_t e = 0; e < choice.size(); ++e) {
    if (!kept[e / size]) choice[e] = -HUGE_VAL;
  }
}

}  // namespace

void ReferenceBackend::route(const Matrix& logits, const Router& router, const Routing& routing) {
  for (int64_t t = 0; t < logits.rows; ++t) {
    const std::vector<double> scores = scores_of(logits, t, router.sigmoid);
    std::vector<double> choice = scores;
    for (size_t e = 0; router.choice_bias && e < choice.size(); ++e) {
      choice[e] += reference::get(router.choice_bias, 0, static_cast<int64_t>(e));
    }
    for (double& value : choice) value = in_order(value);
    if (router.kept_groups < router.n_groups) leave_groups(choice, router);
    const std::vector<size_t> chosen = largest_of(choice, router.n_chosen);
    double sum = 0;
    for (const size_t e : chosen) sum += scores[e];
    for (int64_t j = 0; j < router.n_chosen; ++j) {
      const size_t e = chosen[static_cast<size_t>(j)];
      routing.experts[t * router.n_chosen + j] = static_cast<int32_t>(e);
      reference::put(routing.weights, t, j, scores[e] / (router.normalise ? sum : 1.0) * router.scale);
    }
  }
}

void ReferenceBackend::combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) {
  const int64_t n = routing.weights.cols;
  for (int64_t t = 0; t < out.rows; ++t) {
    const Matrix& logits = routing.shared_logits;
    const double shared = logits ? 1.0 / (1.0 + std::exp(-reference::get(logits, t, 0))) : 1.0;
    for (int64_t i = 0; i < out.cols; ++i) {
      double sum = add ? shared * reference::get(out, t, i) : 0.0;
      for (int64_t j = 0; j < n; ++j) {
        sum += reference::get(routing.weights, t, j) * reference::get(x, t * n + j, i);
      }
      reference::put(out, t, i, sum);
    }
  }
}

}  // namespace lariat
