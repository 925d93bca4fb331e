#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

// Geometry of a forward pass. The caller owns all host memory and keeps it unchanged during a call.
namespace lariat {

struct StepSequence {
  int64_t first_position = 0;  // of the first new token
  int64_t n_tokens = 0;        // their rows follow the previous sequences' rows
  // Page table of all layers: host array of backend pages, [position / kKvPage], up to the last token.
  void* const* pages = nullptr;
};

// Matrices hold the new tokens of all sequences, one sequence after another.
struct Step {
  std::span<const int32_t> tokens{};  // ids of the new tokens; empty where only the cache is worked on
  std::span<const StepSequence> sequences{};  // in the order of their rows
};

// RoPE position of token i (index `place` in its sequence) for dimension pair `pair`; see SequenceRope.
inline double position_of(std::span<const double> positions, std::span<const uint8_t> axes, int64_t i,
                          int64_t place, size_t pair) {
  if (positions.empty()) return static_cast<double>(place);
  return positions[static_cast<size_t>(axes.empty() ? i : 3 * i + axes[pair])];
}

// RoPE parameters of one sequence, in host memory.
struct SequenceRope {
  std::span<const double> inv_freq;     // rotary_dim / 2 values, radians per position
  float q_scale = 1.0F;                 // attention_factor^2; see RopeTable::q_scale
  std::span<const double> positions{};  // of the new tokens; empty: their index in the sequence
  // M-RoPE (arXiv 2409.12191): three positions per token (time, height, width); pair j uses number axes[j].
  // Empty: one position per token.
  std::span<const uint8_t> axes{};
  std::span<const float> whole_q_scale{};  // factor of each whole query; empty: 1
  std::span<const double> phases{};        // added to every token's angles, one per pair; empty: 0

  double angle(int64_t i, int64_t place, size_t pair) const {
    const double phase = phases.empty() ? 0.0 : phases[pair];
    return position_of(positions, axes, i, place, pair) * inv_freq[pair] + phase;
  }

  float whole_q_scale_of(int64_t token) const {
    return whole_q_scale.empty() ? 1.0F : whole_q_scale[static_cast<size_t>(token)];
  }
};

// cos and sin of position * inv_freq per token of a step: f32 [tokens, rotary_dim / 2] each, in backend
// memory. Dimensions from rotary_dim on are not rotated (partial_rotary_factor).
//   half-split  (interleaved = false, HF checkpoints): pair i is (x[i], x[i + rotary_dim/2])
//   interleaved (Meta, GPT-J):                          pair i is (x[2i], x[2i + 1])
//   (a, b) -> (a cos - b sin, a sin + b cos)
struct RopeTable {
  Matrix cos, sin;
  // f32 [tokens, 1]: factor of q's rotated dimensions, the squared attention factor: keys are pure rotations.
  Matrix q_scale;
  Matrix whole_q_scale{};  // f32 [tokens, 1]: factor of all dimensions of q; empty: 1
  int64_t rotary_dim = 0;
  bool interleaved = false;
};

// Begin or end of the visible keys of the token at index p: p, or the start of p's chunk, plus an offset,
// clamped to [least, most]. Never decreases as p grows.
struct KeyEdge {
  static constexpr int32_t kUnbounded = int32_t{1} << 30;  // after every position
  int32_t offset = 0, chunk = 1;
  int32_t least = 0, most = kUnbounded;
  bool operator==(const KeyEdge&) const = default;

  template <class Int>
  constexpr Int at(Int p) const {
    const Int place = (chunk == 1 ? p : p / chunk * chunk) + offset;
    return place < least ? least : place > most ? most : place;
  }
};

// The token at index p sees the keys [begin.at(p), end.at(p)), possibly none, with its query rotated by
// `rope`. Key indices are cache slots. Pages outside all ranges may be missing.
struct KeyRange {
  KeyEdge begin, end;
  RopeTable rope;
  bool second = false;  // reads the second keys (KvLayer)

  // Keys up to the token's own; with a window w > 0 only the last w.
  static KeyRange causal(const RopeTable& rope, int64_t window) {
    const auto w = static_cast<int32_t>(window < KeyEdge::kUnbounded ? window : KeyEdge::kUnbounded);
    KeyRange seen{{}, {}, rope};
    (w > 0 ? seen.begin.offset : seen.begin.most) = w > 0 ? 1 - w : 0;
    seen.end.offset = 1;
    return seen;
  }
  // Upper bound of the number of keys that n consecutive tokens see.
  int64_t most_keys(int64_t n) const {
    const int64_t bounds = int64_t{end.most} - begin.least;
    return begin.most < KeyEdge::kUnbounded
               ? bounds
               : std::min(bounds, n + end.offset - begin.offset + begin.chunk - 2);
  }
};

struct KeyRotation {
  struct Angles {
    std::span<const double> inv_freq;
    std::span<const double> positions{};  // of all n_positions tokens, maybe fractional
  };
  void* const* pages = nullptr;     // as in StepSequence; null pages are skipped
  int64_t n_positions = 0;          // indices [0, n_positions)
  Angles from, to;                  // empty to.positions: every token keeps its position
  std::span<const uint8_t> axes{};  // as in SequenceRope

  bool moves() const { return !to.positions.empty(); }
  std::span<const double> new_positions() const { return moves() ? to.positions : from.positions; }
  // Difference of the angles in double: p * (f_new - f_old) at an unchanged position p, which avoids rounding
  // two angles.
  double angle(int64_t place, size_t pair) const {
    const double p = position_of(new_positions(), axes, place, place, pair);
    if (!moves()) return p * (to.inv_freq[pair] - from.inv_freq[pair]);
    return p * to.inv_freq[pair] -
           position_of(from.positions, axes, place, place, pair) * from.inv_freq[pair];
  }
};

// Positions per page of the KV cache. A page is one block of backend memory with the keys and values of *all*
// layers.
inline constexpr int64_t kKvPage = 256;

// Index of element (head, position, d) in keys(page) or values(page).
constexpr int64_t kv_index(int64_t head, int64_t position, int64_t d, int64_t head_dim) {
  return (head * kKvPage + position % kKvPage) * head_dim + d;
}

// Byte offset of a kQ8 value's scale from values(page).
constexpr int64_t kv_scale_offset(int64_t n_kv_heads, int64_t head_dim, int64_t head, int64_t position) {
  return n_kv_heads * kKvPage * head_dim + int64_t{sizeof(float)} * kv_index(head, position, 0, 1);
}

// Part of one layer in every page of a cache:
//   page + k_offset -> [n_kv_heads][kKvPage][head_dim]   (k_dtype)
//   page + v_offset -> [n_kv_heads][kKvPage][head_dim]   (v_dtype)
// Keys are stored rotated, without the attention factor. kQ8 values: int8, then f32 scales
// [n_kv_heads][kKvPage] (kernels/kv_values.h).
struct KvLayer {
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  DType k_dtype = DType::kF16;
  DType v_dtype = DType::kF16;
  size_t k_offset = 0, v_offset = 0;  // bytes, multiples of 64; equal for MLA: keys are the values
  size_t second_k_offset = 0;         // copy of all keys, rotated to other positions; 0: none

  void* keys(void* page) const { return static_cast<char*>(page) + k_offset; }
  KvLayer with_second_keys() const {
    KvLayer layer = *this;
    layer.k_offset = second_k_offset;
    return layer;
  }
  void* values(void* page) const { return static_cast<char*>(page) + v_offset; }

  // Keys, values, scales of values, second keys in a page: `bytes` per head and position, at offset +
  // kv_index(head, position, 0, 1) * bytes.
  struct Rows {
    size_t offset, bytes;
  };
  std::vector<Rows> rows() const;
};

// Bytes of one head's key or value at a position, including its scale.
inline size_t kv_bytes(DType dtype, int64_t head_dim) {
  const auto n = static_cast<size_t>(head_dim);
  return dtype == DType::kQ8 ? n + sizeof(float) : n * size_of(dtype);
}

struct KvGeometry {
  std::vector<KvLayer> layers;
  size_t page_bytes = 0;

  void add_layer(int64_t n_kv_heads, int64_t head_dim, DType k_dtype, DType v_dtype,
                 bool second_keys = false);
  // Appends a layer whose keys are also its values (MLA).
  void add_latent_layer(int64_t head_dim, DType dtype);
};

}  // namespace lariat
