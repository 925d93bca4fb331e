#include <algorithm>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::token_nll(const Matrix& logits, std::span<const int32_t> targets,
                                 std::span<double> nll) {
  for (int64_t t = 0; t < logits.rows; ++t) {
    double largest = -HUGE_VAL;
    for (int64_t v = 0; v < logits.cols; ++v) largest = std::max(largest, reference::get(logits, t, v));
    double sum = 0;
    for (int64_t v = 0; v < logits.cols; ++v) sum += std::exp(reference::get(logits, t, v) - largest);
    const auto token = static_cast<size_t>(t);
    nll[token] = largest + std::log(sum) - reference::get(logits, t, targets[token]);
  }
}

}  // namespace lariat
