#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) {
  std::vector<double> row(static_cast<size_t>(x.cols));
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) row[static_cast<size_t>(i)] = reference::get(x, t, i);
    reference::normalise(row, weight, eps);
    for (int64_t i = 0; i < x.cols; ++i) reference::put(out, t, i, row[static_cast<size_t>(i)]);
  }
}

void ReferenceBackend::add_rms_norm(const Matrix& residual, const Matrix& delta, const Matrix& weight,
                                    float eps, const Matrix& out) {
  add(residual, delta);
  rms_norm(residual, weight, eps, out);
}

}  // namespace lariat
