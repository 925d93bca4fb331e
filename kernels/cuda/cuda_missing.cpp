#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/error.h"
#include "kernels/limits.h"

// Stands in for the CUDA backend in a program that was built without it.
namespace lariat {

std::string cuda_unavailable_reason(int) { return "this lariat was built without CUDA"; }

std::unique_ptr<Backend> make_cuda_backend(int, std::function<void(const std::string&)>) {
  throw Error(cuda_unavailable_reason() + " (-DLARIAT_CUDA=ON)");
}

Limits measure_cuda_limits(Backend&, DType) { return {}; }

}  // namespace lariat
