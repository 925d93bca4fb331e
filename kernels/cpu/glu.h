#pragma once
#include <cstddef>

#include "kernels/weight.h"

namespace lariat::cpu {

// out[i] = activation(gate[i]) * up[i], for n numbers; null up: factor 1. out may be gate or up.
void glu_values(const float* gate, const float* up, size_t n, Activation activation, float* out);

}  // namespace lariat::cpu
