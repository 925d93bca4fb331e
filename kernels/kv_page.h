#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

// How keys and values lie in the pages of a KV cache.
namespace lariat {

// Positions per page of the KV cache. A page is one block of backend memory that holds the keys and values of
// *all* layers for kKvPage consecutive positions of a sequence; the cache grows, is shared and is copied by
// pages.
inline constexpr int64_t kKvPage = 256;

// The one index function of the cache: element (head, position, d) of keys(page) or values(page).
constexpr int64_t kv_index(int64_t head, int64_t position, int64_t d, int64_t head_dim) {
  return (head * kKvPage + position % kKvPage) * head_dim + d;
}

// Where the scale of a head's kQ8 value at a position is, in bytes from values(page).
constexpr int64_t kv_scale_offset(int64_t n_kv_heads, int64_t head_dim, int64_t head, int64_t position) {
  return n_kv_heads * kKvPage * head_dim + int64_t{sizeof(float)} * kv_index(head, position, 0, 1);
}

// The part of one layer in every page of a cache:
//
//   page + k_offset -> [n_kv_heads][kKvPage][head_dim]   (k_dtype)
//   page + v_offset -> [n_kv_heads][kKvPage][head_dim]   (v_dtype)
//
// so the keys of one head are contiguous inside a page. Keys are stored rotated and without the attention
// factor. Values, which nothing rotates, may be kQ8: int8, and behind them [n_kv_heads][kKvPage] f32 scales,
// one for each position of a head (kernels/kv_values.h).
struct KvLayer {
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  DType k_dtype = DType::kF16;
  DType v_dtype = DType::kF16;
  size_t k_offset = 0, v_offset = 0;  // bytes, multiples of 64; equal where the values are the keys (MLA)

  void* keys(void* page) const { return static_cast<char*>(page) + k_offset; }
  void* values(void* page) const { return static_cast<char*>(page) + v_offset; }
  float* value_scale(void* page, int64_t head, int64_t position) const {  // of kQ8 values
    return reinterpret_cast<float*>(static_cast<char*>(values(page)) +
                                    kv_scale_offset(n_kv_heads, head_dim, head, position));
  }
};

// What a key or a value of one head and position takes in a page, with its scale if it has one.
inline size_t kv_bytes(DType dtype, int64_t head_dim) {
  const auto n = static_cast<size_t>(head_dim);
  return dtype == DType::kQ8 ? n + sizeof(float) : n * size_of(dtype);
}

// What a page holds: one KvLayer per layer of the model, and its size.
struct KvGeometry {
  std::vector<KvLayer> layers;
  size_t page_bytes = 0;

  // Appends a layer behind those that are there.
  void add_layer(int64_t n_kv_heads, int64_t head_dim, DType k_dtype, DType v_dtype);
  // Likewise, one that stores a row of `head_dim` values per position, which is key and value in one.
  void add_latent_layer(int64_t head_dim, DType dtype);
};

}  // namespace lariat
