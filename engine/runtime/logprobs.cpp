#include "engine/runtime/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lariat {

Logprobs::Logprobs(Backend& backend, const Matrix& logits, int64_t top)
    : logits_(static_cast<size_t>(logits.cols)) {
  backend.copy_out(logits_.data(), logits.data, logits_.size() * sizeof(float));
  likeliest_ = static_cast<int32_t>(std::ranges::max_element(logits_) - logits_.begin());
  backend.token_nll(logits, {&likeliest_, 1}, {&loss_, 1});
  if (top == 0 || std::isnan(loss_)) return;  // NaN cannot be ordered
  std::vector<int32_t> ids(logits_.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min(top, logits.cols);
  std::partial_sort(ids.begin(), end, ids.end(), [x = logits_.data()](int32_t a, int32_t b) {
    return x[a] > x[b] || (x[a] == x[b] && a < b);
  });
  std::for_each(ids.begin(), end, [&](int32_t id) { top_.push_back({id, of(id).logprob}); });
}

TokenScore Logprobs::of(int32_t token) const {
  const double most = logits_[static_cast<size_t>(likeliest_)];
  return {logits_[static_cast<size_t>(token)] - most - loss_, token == likeliest_, top_};
}

}  // namespace lariat
