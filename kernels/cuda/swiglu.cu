#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise.cuh"

namespace lariat {
namespace {

struct SiluTimes {
  __device__ float operator()(float gate, float up) const { return gate / (1.0F + expf(-gate)) * up; }
};

}  // namespace

void CudaBackend::swiglu(const Matrix& gate, const Matrix& up) {
  cuda::launch_elementwise(gate, up, SiluTimes{}, stream_);
}

}  // namespace lariat
