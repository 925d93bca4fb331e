#pragma once
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace lariat {

// Why this program cannot compute on a GPU (built without CUDA, no driver, no device), or empty if it can.
std::string cuda_unavailable_reason();

// The CUDA backend on device `index`. Throws Error with the reason when there is none.
std::unique_ptr<Backend> make_cuda_backend(int index = 0);

}  // namespace lariat
