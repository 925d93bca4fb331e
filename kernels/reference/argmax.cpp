#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::argmax(const Matrix& logits, std::span<int32_t> ids) {
  for (int64_t t = 0; t < logits.rows; ++t) {
    int64_t best = -1;
    for (int64_t v = 0; v < logits.cols; ++v) {
      const double value = reference::get(logits, t, v);
      if (!std::isnan(value) && (best < 0 || value > reference::get(logits, t, best))) best = v;
    }
    ids[static_cast<size_t>(t)] = static_cast<int32_t>(best < 0 ? 0 : best);  // a row of NaN: 0
  }
}

}  // namespace lariat
