#pragma once
#include <vector>

#include "kernels/backend.h"

namespace lariat {

// Copies an f32 matrix in backend memory, row by row.
std::vector<float> to_host(Backend& backend, const Matrix& matrix);

}  // namespace lariat
