#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/error.h"

// Stands in for the CUDA backend in a program that was built without it.
namespace lariat {

std::string cuda_unavailable_reason() { return "this lariat was built without CUDA"; }

std::unique_ptr<Backend> make_cuda_backend(int) {
  throw Error(cuda_unavailable_reason() + " (-DLARIAT_CUDA=ON)");
}

}  // namespace lariat
