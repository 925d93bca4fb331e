#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace lariat {

// Reason why this program cannot use GPU `index`, or empty.
std::string cuda_unavailable_reason(int index = 0);

// Throws Error with the reason if the device is unavailable. `warn` receives one line, once, for each feature
// that works but is slower than expected.
std::unique_ptr<Backend> make_cuda_backend(int index = 0, std::function<void(const std::string&)> warn = {});

}  // namespace lariat
