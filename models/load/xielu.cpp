#include <algorithm>
#include <cmath>

#include "models/load/weights.h"

namespace lariat {

Xielu xielu_of(const XieluWeights& weights, Backend& backend) {
  if (!weights.beta) return {};
  const auto number = [&](const Matrix& of) {
    float value = 0.0F;
    backend.copy_out(&value, of.data, sizeof value);
    return value;
  };
  const auto softplus = [](float x) { return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))); };
  const float beta = number(weights.beta);
  return {softplus(number(weights.alpha_p)), beta + softplus(number(weights.alpha_n)), beta,
          number(weights.eps)};
}

}  // namespace lariat
