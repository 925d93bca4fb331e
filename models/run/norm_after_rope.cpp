#include "models/run/norm_after_rope.h"

#include "kernels/to_host.h"

namespace lariat {

NormAfterRope::NormAfterRope(const ModelSpec& spec, const Weights& weights, Backend& backend) {
  if (!spec.norms_after_rope()) return;
  const int64_t head_dim = spec.layers.front().attention.head_dim;
  std::vector<float> factors(static_cast<size_t>(head_dim), 1.0F);
  for (const LayerWeights& layer : weights.layers) {
    const std::vector<float> q = to_host(backend, layer.qkv_epilogue.q_norm),
                             k = to_host(backend, layer.qkv_epilogue.k_norm);
    for (size_t d = 0; d < q.size(); ++d) factors.push_back(q[d] * k[d]);
  }
  memory_ = backend.allocate(factors.size() * sizeof(float));
  backend.copy_in(memory_.data(), factors.data(), factors.size() * sizeof(float));
  factors_ = Matrix(memory_.data(), DType::kF32, std::ssize(weights.layers) + 1, head_dim);
}

void NormAfterRope::replace_norms(QkvEpilogue& epilogue) const {
  if (factors_) epilogue.q_norm = epilogue.k_norm = factors_.row_range(0, 1);
}

Matrix NormAfterRope::q_weight(size_t layer) const {
  return factors_ ? factors_.row_range(static_cast<int64_t>(layer) + 1, 1) : Matrix();
}

}  // namespace lariat
