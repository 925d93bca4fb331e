#pragma once
#include "tests/kernels/tensors.h"

namespace lariat::test {

// f16 keys and bf16 values with normal noise; all pages are equal, which does not affect the speed.
class NoiseCache {
 public:
  NoiseCache(Backend& backend, int64_t positions, int64_t n_kv_heads, int64_t head_dim,
             int64_t n_layers = 1) {
    for (int64_t i = 0; i < n_layers; ++i) {
      geometry_.add_layer(n_kv_heads, head_dim, DType::kF16, DType::kBF16);
    }
    std::vector<char> page(geometry_.page_bytes);
    Rng rng(1);
    for (const KvLayer& layer : geometry_.layers) {
      for (int64_t i = 0; i < n_kv_heads * kKvPage * head_dim; ++i) {
        store_f32(layer.keys(page.data()), layer.k_dtype, i, static_cast<float>(rng.uniform() - 0.5));
        store_f32(layer.values(page.data()), layer.v_dtype, i, static_cast<float>(rng.uniform() - 0.5));
      }
    }
    for (int64_t first = 0; first < positions; first += kKvPage) {
      memory_.push_back(backend.allocate(page.size()));
      backend.copy_in(memory_.back().data(), page.data(), page.size());
      pages_.push_back(memory_.back().data());
    }
  }

  const KvLayer& layer() const { return geometry_.layers[0]; }
  std::span<const KvLayer> layers() const { return geometry_.layers; }
  void* const* pages() const { return pages_.data(); }

 private:
  KvGeometry geometry_;
  std::vector<Buffer> memory_;
  std::vector<void*> pages_;
};

}  // namespace lariat::test
