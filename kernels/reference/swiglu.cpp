#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::swiglu(const Matrix& gate, const Matrix& up) {
  for (int64_t t = 0; t < gate.rows; ++t) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      const double x = reference::get(gate, t, i);
      reference::put(gate, t, i, x / (1.0 + std::exp(-x)) * reference::get(up, t, i));
    }
  }
}

}  // namespace lariat
