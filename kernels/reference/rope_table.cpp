#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {

void ReferenceBackend::rope_table(int64_t first_position, std::span<const double> inv_freq,
                                  const RopeTable& table) {
  for (int64_t i = 0; i < table.cos.rows; ++i) {
    for (size_t j = 0; j < inv_freq.size(); ++j) {
      const double angle = static_cast<double>(first_position + i) * inv_freq[j];
      reference::put(table.cos, i, static_cast<int64_t>(j), std::cos(angle));
      reference::put(table.sin, i, static_cast<int64_t>(j), std::sin(angle));
    }
  }
}

}  // namespace lariat
