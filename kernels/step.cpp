#include "kernels/step.h"

#include "kernels/integers.h"

namespace lariat {

std::vector<KvLayer::Rows> KvLayer::rows() const {
  std::vector<Rows> all = {{k_offset, kv_bytes(k_dtype, head_dim)}};
  if (v_offset == k_offset) return all;
  if (v_dtype != DType::kQ8) {
    all.push_back({v_offset, kv_bytes(v_dtype, head_dim)});
  } else {
    all.push_back({v_offset, static_cast<size_t>(head_dim)});
    all.push_back(
        {v_offset + static_cast<size_t>(kv_scale_offset(n_kv_heads, head_dim, 0, 0)), sizeof(float)});
  }
  if (second_k_offset > 0) all.push_back({second_k_offset, kv_bytes(k_dtype, head_dim)});
  return all;
}

void KvGeometry::add_layer(int64_t n_kv_heads, int64_t head_dim, DType k_dtype, DType v_dtype,
                           bool second_keys) {
  const auto vectors = static_cast<size_t>(n_kv_heads * kKvPage);
  const auto take = [&](DType dtype) {
    const size_t offset = page_bytes;
    page_bytes += round_up<size_t>(vectors * kv_bytes(dtype, head_dim), 64);
    return offset;
  };
  KvLayer layer{n_kv_heads, head_dim, k_dtype, v_dtype};
  layer.k_offset = take(k_dtype);
  layer.v_offset = take(v_dtype);
  if (second_keys) layer.second_k_offset = take(k_dtype);
  layers.push_back(layer);
}

void KvGeometry::add_latent_layer(int64_t head_dim, DType dtype) {
  KvLayer layer{1, head_dim, dtype, dtype};
  layer.k_offset = layer.v_offset = page_bytes;
  page_bytes += round_up<size_t>(static_cast<size_t>(kKvPage * head_dim) * size_of(dtype), 64);
  layers.push_back(layer);
}

}  // namespace lariat
