#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

// The whole geometry of a forward pass: which tokens are new, where their sequences stand, with which RoPE
// frequencies, and how keys and values lie in the pages of a KV cache. All of it is host memory that belongs
// to the caller and stays as it is during the call it is passed to.
namespace lariat {

// One sequence's part in a step.
struct StepSequence {
  int64_t first_position = 0;  // of its first new token
  int64_t n_tokens = 0;        // new ones; their rows follow those of the sequences before
  // Its page table, shared by all layers: host array of pages in the backend's memory, the page of a position
  // at [position / kKvPage], up to that of the last new token.
  void* const* pages = nullptr;
};

// One forward pass. Its matrices hold the new tokens of all its sequences, one sequence after the other.
struct Step {
  std::span<const int32_t> tokens{};  // ids of the new tokens; empty where only the cache is worked on
  std::span<const StepSequence> sequences{};  // in the order of their rows
};

// The RoPE frequencies of one sequence of a step.
struct SequenceRope {
  std::span<const double> inv_freq;  // rotary_dim / 2 values, radians per position; host memory
  float q_scale = 1.0F;              // attention_factor^2: see RopeTable::q_scale
  // M-RoPE (arXiv 2409.12191): token i of the step's new ones stands at the three positions [3 i .. 3 i + 2]
  // of `positions` (time, height, width), and pair j turns by number axes[j] of them. Both empty: by the
  // token's position in the sequence. Host memory.
  std::span<const int32_t> positions{};
  std::span<const uint8_t> axes{};  // one per pair
  // Queries scaled by their position p: q_scale * (1 + log_beta * ln g), g = 1 + floor(p / log_ctx) (Llama 4)
  // or, without steps, max(1, (p + 1) / log_ctx) (Qwen 1).
  double log_beta = 0.0;  // 0: none
  int64_t log_ctx = 1;
  bool log_steps = true;

  float q_scale_at(int64_t position) const {
    if (log_beta == 0.0) return q_scale;
    const int64_t beyond =
        log_steps ? position / log_ctx * log_ctx : std::max<int64_t>(position + 1 - log_ctx, 0);
    const double lengths = static_cast<double>(beyond) / static_cast<double>(log_ctx);
    return static_cast<float>(q_scale * (1.0 + log_beta * std::log1p(lengths)));
  }
};

// cos and sin of position * inv_freq for every token of a step: f32 [tokens, rotary_dim / 2] each, in the
// backend's memory. Dimensions at and above rotary_dim are not rotated (partial_rotary_factor).
//   half-split  (interleaved = false, HF checkpoints): pair i is (x[i], x[i + rotary_dim/2])
//   interleaved (Meta, GPT-J):                          pair i is (x[2i], x[2i + 1])
//   (a, b) -> (a cos - b sin, a sin + b cos)
struct RopeTable {
  Matrix cos, sin;
  // f32 [tokens, 1]: what the rotated dimensions of q are multiplied with. transformers multiplies cos and
  // sin of q and of k by the attention factor; keys here are pure rotations, so q carries its square.
  Matrix q_scale;
  int64_t rotary_dim = 0;
  bool interleaved = false;
};

// Cached keys of one sequence that are to follow a change of its RoPE frequencies.
struct KeyRotation {
  void* const* pages = nullptr;            // as in StepSequence
  int64_t n_positions = 0;                 // from 0 on
  std::span<const double> delta_inv_freq;  // new inv_freq - old inv_freq; host memory
  // As in SequenceRope, for all n_positions tokens; both empty without M-RoPE.
  std::span<const int32_t> positions{};
  std::span<const uint8_t> axes{};
};

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
};

// Bytes that a key or a value of one head and position takes in a page, with its scale if it has one.
inline size_t kv_bytes(DType dtype, int64_t head_dim) {
  const auto n = static_cast<size_t>(head_dim);
  return dtype == DType::kQ8 ? n + sizeof(float) : n * size_of(dtype);
}

// The layout of a page: one KvLayer per layer of the model, and its size.
struct KvGeometry {
  std::vector<KvLayer> layers;
  size_t page_bytes = 0;

  // Appends a layer behind those that are there.
  void add_layer(int64_t n_kv_heads, int64_t head_dim, DType k_dtype, DType v_dtype);
  // Appends a layer that stores a row of `head_dim` values per position, which is key and value in one.
  void add_latent_layer(int64_t head_dim, DType dtype);
};

}  // namespace lariat
