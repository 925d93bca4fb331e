#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise.cuh"

namespace lariat {
namespace {

struct Add {
  __device__ float operator()(float x, float delta) const { return x + delta; }
};

}  // namespace

void CudaBackend::add(const Matrix& x, const Matrix& delta) {
  cuda::launch_elementwise(x, delta, Add{}, stream_);
}

}  // namespace lariat
