#include <algorithm>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

void rerotate_key(void* block, const KvLayer& layer, int64_t head, int64_t position,
                  std::span<const double> delta_inv_freq, bool interleaved) {
  std::vector<double> key(static_cast<size_t>(layer.head_dim));
  for (int64_t d = 0; d < layer.head_dim; ++d) {
    key[static_cast<size_t>(d)] = load_f32(block, layer.k_dtype, kv_index(head, position, d, layer.head_dim));
  }
  for (size_t pair = 0; pair < delta_inv_freq.size(); ++pair) {
    const double angle = static_cast<double>(position) * delta_inv_freq[pair];
    reference::rotate_pair(key.data(), static_cast<int64_t>(pair),
                           static_cast<int64_t>(2 * delta_inv_freq.size()), interleaved, std::cos(angle),
                           std::sin(angle));
  }
  const double largest = layer.k_dtype == DType::kF16 ? 65504.0 : HUGE_VAL;
  for (int64_t d = 0; d < layer.head_dim; ++d) {
    const double value = std::clamp(key[static_cast<size_t>(d)], -largest, largest);
    store_f32(block, layer.k_dtype, kv_index(head, position, d, layer.head_dim), static_cast<float>(value));
  }
}

}  // namespace

void ReferenceBackend::rerotate_keys(std::span<const KvLayer> layers, int64_t n_positions,
                                     std::span<const double> delta_inv_freq, bool interleaved) {
  for (const KvLayer& layer : layers) {
    for (int64_t position = 0; position < n_positions; ++position) {
      for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
        rerotate_key(layer.k_blocks[position / kKvPage], layer, head, position, delta_inv_freq, interleaved);
      }
    }
  }
}

}  // namespace lariat
