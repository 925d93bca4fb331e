#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace lariat {

// Why this program cannot compute on GPU `index` (built without CUDA, no driver, no such device), or empty if
// it can.
std::string cuda_unavailable_reason(int index = 0);

// The CUDA backend on device `index`. Throws Error with the reason when there is none. `warn` is given what
// works, but slower than it should: one line each, once.
std::unique_ptr<Backend> make_cuda_backend(int index = 0, std::function<void(const std::string&)> warn = {});

}  // namespace lariat
