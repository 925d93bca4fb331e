#pragma once
#include <cstdint>

#include "kernels/tensor.h"

namespace lariat::test {

// One warp runs one instruction of kernels/cuda/ptx.cuh. Operands are device memory, by lane.
// mma_16x8x16: d[32][4] += a[32][4] b[32][2]; dtype: kF16 or kBF16.
void run_mma(DType dtype, const uint32_t* a, const uint32_t* b, float* d);
void run_mma_of_bytes(const uint32_t* a, const uint32_t* b, int32_t* d);  // mma_16x8x32
// r[32][4]: results, if lane l points at rows[row_of_lane[l]]; rows[32][8].
void run_ldmatrix(bool transposed, const uint16_t* rows, const int32_t* row_of_lane, uint32_t* r);

}  // namespace lariat::test
