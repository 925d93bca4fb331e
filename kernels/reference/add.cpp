#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::add(const Matrix& x, const Matrix& delta) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) {
      reference::put(x, t, i, reference::get(x, t, i) + reference::get(delta, t, i));
    }
  }
}

}  // namespace lariat
