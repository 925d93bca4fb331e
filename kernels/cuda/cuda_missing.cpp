#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/error.h"
#include "kernels/limits.h"

// Replaces the CUDA backend in builds without CUDA.
namespace lariat {

std::string cuda_unavailable_reason(int) { return "this lariat was built without CUDA"; }

std::unique_ptr<Backend> make_cuda_backend(int, std::function<void(const std::string&)>) {
  throw Error(cuda_unavailable_reason() + "; rebuild with -DLARIAT_CUDA=ON");
}

Limits measure_cuda_limits(Backend&, DType) { return {}; }

}  // namespace lariat
