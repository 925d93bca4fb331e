#pragma once
#include "kernels/tensor.h"

namespace lariat::cpu {

// dst = src between host matrices of one shape and any dtypes: kernels/convert.h, vectorised, on the calling
// thread.
void convert_rows(const Matrix& src, const Matrix& dst);

}  // namespace lariat::cpu
