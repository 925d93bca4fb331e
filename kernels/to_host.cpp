#include "kernels/to_host.h"

namespace lariat {

std::vector<float> to_host(Backend& backend, const Matrix& matrix) {
  std::vector<float> rows(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    backend.copy_out(rows.data() + r * matrix.cols, matrix.row_range(r, 1).data,
                     static_cast<size_t>(matrix.cols) * sizeof(float));
  }
  return rows;
}

}  // namespace lariat
