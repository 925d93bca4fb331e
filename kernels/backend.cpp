#include "kernels/backend.h"

#include <algorithm>

namespace lariat {

void Backend::sample_ahead(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
                           std::span<int32_t> ids, const std::function<void()>&) {
  sample(logits, how, uniforms, ids);
  if (how.temperature > 0.0F || std::find(ids.begin(), ids.end(), -1) == ids.end()) return;
  std::vector<int32_t> best(ids.size());
  argmax(logits, best);
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0) ids[t] = -1 - best[t];
  }
}

void Backend::project(const Matrix& x, std::span<const Product> products, DType compute) {
  for (const Product& product : products) matmul(x, product.w, product.bias, compute, product.out);
}

void Backend::matmul_add_norm(const Matrix& x, const Product& product, DType compute, const Matrix& residual,
                              float scale, const Norm& norm, const Matrix& out) {
  matmul(x, product.w, product.bias, compute, product.out);
  add_norm(residual, product.out, scale, norm, out);
}

void Backend::gated(const Matrix& x, const Product& gate, const Product& up, Activation activation,
                    DType compute, const Matrix& out) {
  const Product products[] = {gate, up};
  project(x, products, compute);
  glu(gate.out, up.out, activation, out);
}

}  // namespace lariat
