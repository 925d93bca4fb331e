#pragma once
#include <vector>

#include "kernels/convert.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {

// The KV cache of one layer, filled with noise: f16 keys and bf16 values, as a bf16 model has. What the
// numbers are does not matter for speed as long as they are ordinary, so every block holds the same ones.
class NoiseCache {
 public:
  NoiseCache(Backend& backend, int64_t positions, int64_t n_kv_heads, int64_t head_dim) {
    const int64_t elements = n_kv_heads * kKvPage * head_dim;
    const std::vector<char> keys = noise(elements, DType::kF16), values = noise(elements, DType::kBF16);
    for (int64_t first = 0; first < positions; first += kKvPage) {
      k_pointers_.push_back(block(backend, keys));
      v_pointers_.push_back(block(backend, values));
    }
    layer_ = {k_pointers_.data(), v_pointers_.data(), DType::kF16, DType::kBF16, n_kv_heads, head_dim};
  }
  NoiseCache(const NoiseCache&) = delete;  // layer() points into this object
  NoiseCache& operator=(const NoiseCache&) = delete;

  const KvLayer& layer() const { return layer_; }

 private:
  static std::vector<char> noise(int64_t elements, DType dtype) {
    std::vector<char> bytes(static_cast<size_t>(elements) * size_of(dtype));
    Rng rng(1);
    for (int64_t i = 0; i < elements; ++i) {
      store_f32(bytes.data(), dtype, i, static_cast<float>(rng.uniform() - 0.5));
    }
    return bytes;
  }

  void* block(Backend& backend, const std::vector<char>& bytes) {
    buffers_.push_back(backend.allocate(bytes.size()));
    backend.copy_in(buffers_.back().data(), bytes.data(), bytes.size());
    return buffers_.back().data();
  }

  std::vector<Buffer> buffers_;
  std::vector<void*> k_pointers_, v_pointers_;
  KvLayer layer_;
};

}  // namespace lariat::test
