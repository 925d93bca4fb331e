#include "tests/cuda/ptx_kernels.h"

#include "kernels/cuda/device.h"
#include "kernels/cuda/ptx.cuh"

namespace lariat::test {
namespace {

using namespace cuda;

// T: int8_t or mma_16x8x16's element type.
template <class T, class Sum>
__global__ void mma_kernel(const uint32_t* a, const uint32_t* b, Sum* d) {
  const int lane = lane_index();
  uint32_t mine[4];
  Sum sum[4];
  for (int i = 0; i < 4; ++i) {
    mine[i] = a[lane * 4 + i];
    sum[i] = d[lane * 4 + i];
  }
  if constexpr (std::is_same_v<T, int8_t>) {
    mma_16x8x32(sum, mine, b[lane * 2], b[lane * 2 + 1]);
  } else {
    mma_16x8x16<T>(sum, mine, b[lane * 2], b[lane * 2 + 1]);
  }
  for (int i = 0; i < 4; ++i) d[lane * 4 + i] = sum[i];
}

__global__ void ldmatrix_kernel(bool transposed, const uint16_t* rows, const int32_t* row_of_lane,
                                uint32_t* r) {
  LARIAT_SHARED(uint4, shared, kWarpSize);
  const int lane = lane_index();
  shared[lane] = load16(rows + lane * 8);
  __syncwarp();
  uint32_t mine[4];
  if (transposed) {
    ldmatrix_x4_trans(mine, &shared[row_of_lane[lane]]);
  } else {
    ldmatrix_x4(mine, &shared[row_of_lane[lane]]);
  }
  for (int i = 0; i < 4; ++i) r[lane * 4 + i] = mine[i];
}

}  // namespace

void run_mma(DType dtype, const uint32_t* a, const uint32_t* b, float* d) {
  cuda::launch(dtype == DType::kF16 ? mma_kernel<Half, float> : mma_kernel<BFloat16, float>, dim3(1),
               dim3(kWarpSize), 0, nullptr, a, b, d);
  stream_synchronize(nullptr);
}

void run_mma_of_bytes(const uint32_t* a, const uint32_t* b, int32_t* d) {
  cuda::launch(mma_kernel<int8_t, int32_t>, dim3(1), dim3(kWarpSize), 0, nullptr, a, b, d);
  stream_synchronize(nullptr);
}

void run_ldmatrix(bool transposed, const uint16_t* rows, const int32_t* row_of_lane, uint32_t* r) {
  cuda::launch(ldmatrix_kernel, dim3(1), dim3(kWarpSize), 0, nullptr, transposed, rows, row_of_lane, r);
  stream_synchronize(nullptr);
}

}  // namespace lariat::test
