#pragma once
#include "kernels/host_weight.h"

namespace lariat::cpu {

// `to`, a matrix in host memory, of the rows of a weight from `first_row` on, a multiple of kQuantRows:
// lay_out() of kernels/host_weight.h bit by bit, vectorised and on several threads.
void lay_out_rows(const HostWeight& from, int64_t first_row, const Matrix& to, int threads);

}  // namespace lariat::cpu
