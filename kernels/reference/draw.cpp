#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

// -1 - i, where i is the first index of the largest value, or 0 if all values are NaN.
int32_t nothing_drawn(const Matrix& logits, int64_t t) {
  int64_t largest = -1;
  for (int64_t v = 0; v < logits.cols; ++v) {
    const double x = reference::get(logits, t, v);
    if (!std::isnan(x) && (largest < 0 || x > reference::get(logits, t, largest))) largest = v;
  }
  return -1 - static_cast<int32_t>(std::max<int64_t>(largest, 0));
}

// Ids of the finite logits in descending order; empty if no logit is finite or one is +inf.
std::vector<int32_t> in_order(const Matrix& logits, int64_t t) {
  std::vector<int32_t> ids;
  for (int64_t v = 0; v < logits.cols; ++v) {
    const double x = reference::get(logits, t, v);
    if (std::isinf(x) && x > 0) return {};
    if (std::isfinite(x)) ids.push_back(static_cast<int32_t>(v));
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return reference::get(logits, t, a) > reference::get(logits, t, b);
  });
  return ids;
}

// Weights of the kept tokens, in the same order.
std::vector<double> kept_weights(const std::vector<double>& all, const Sampling& how) {
  std::vector<double> kept = all;
  if (how.top_k > 0 && static_cast<size_t>(how.top_k) < kept.size()) {
    kept.resize(static_cast<size_t>(how.top_k));
  }
  if (how.top_p < 1.0F) {
    const double wanted = static_cast<double>(how.top_p) * std::accumulate(kept.begin(), kept.end(), 0.0);
    double reached = kept[0];
    size_t n = 1;
    while (n < kept.size() && reached < wanted) reached += kept[n++];
    kept.resize(n);
  }
  while (kept.back() < static_cast<double>(how.min_p)) kept.pop_back();
  return kept;
}

int32_t draw_row(const Matrix& logits, int64_t t, const Sampling& how, double uniform) {
  const std::vector<int32_t> ids = in_order(logits, t);
  if (ids.empty()) return nothing_drawn(logits, t);
  if (how.temperature <= 0.0F) return ids[0];
  const double largest = reference::get(logits, t, ids[0]);
  std::vector<double> weights;
  weights.reserve(ids.size());
  for (int32_t id : ids) {
    weights.push_back(
        std::exp((reference::get(logits, t, id) - largest) / static_cast<double>(how.temperature)));
  }
  const std::vector<double> kept = kept_weights(weights, how);
  const double target = uniform * std::accumulate(kept.begin(), kept.end(), 0.0);
  double reached = kept[0];
  size_t i = 0;
  while (i + 1 < kept.size() && reached <= target) reached += kept[++i];
  return ids[i];
}

}  // namespace

void ReferenceBackend::draw(const Matrix& logits, std::span<const Sampling> how,
                            std::span<const double> uniforms) {
  drawn_.clear();
  for (int64_t t = 0; t < logits.rows; ++t) {
    const auto row = static_cast<size_t>(t);
    drawn_.push_back(how.empty() || uniforms.empty() ? draw_row(logits, t, {}, 0)
                                                     : draw_row(logits, t, how[row], uniforms[row]));
  }
}

void ReferenceBackend::read_drawn(std::span<int32_t> ids) {
  std::copy_n(drawn_.begin(), ids.size(), ids.begin());
}

}  // namespace lariat
