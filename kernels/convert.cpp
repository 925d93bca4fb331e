#include "kernels/convert.h"

namespace lariat {

void convert(const Matrix& src, const Matrix& dst) {
  for (int64_t r = 0; r < src.rows; ++r) {
    for (int64_t c = 0; c < src.cols; ++c) {
      store_f32(dst.data, dst.dtype, r * dst.stride + c, load_f32(src.data, src.dtype, r * src.stride + c));
    }
  }
}

}  // namespace lariat
