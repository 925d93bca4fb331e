#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::embed(std::span<const int32_t> tokens, const Matrix& table, const Matrix& out) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (int64_t i = 0; i < table.cols; ++i) {
      reference::put(out, static_cast<int64_t>(t), i, reference::get(table, tokens[t], i));
    }
  }
}

}  // namespace lariat
