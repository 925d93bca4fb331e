#pragma once
#include <algorithm>
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

// What pair `pair` of token i turns by, which is at `place` of its sequence: see SequenceRope.
inline double position_of(std::span<const double> positions, std::span<const uint8_t> axes, int64_t i,
                          int64_t place, size_t pair) {
  if (positions.empty()) return static_cast<double>(place);
  return positions[static_cast<size_t>(axes.empty() ? i : 3 * i + axes[pair])];
}

// The RoPE frequencies of one sequence of a step.
struct SequenceRope {
  std::span<const double> inv_freq;  // rotary_dim / 2 values, radians per position; host memory
  float q_scale = 1.0F;              // attention_factor^2: see RopeTable::q_scale
  // Of the step's new tokens; none: each stands at its place in the sequence. Host memory, as all of this.
  std::span<const double> positions{};
  // M-RoPE (arXiv 2409.12191): the positions are three for each token (time, height, width), and pair j turns
  // by number axes[j] of them. Empty: one for each token.
  std::span<const uint8_t> axes{};
  std::span<const float> whole_q_scale{};  // what each whole query is multiplied with; empty: nothing
  std::span<const double> phases{};        // added to every token's angles, one per pair; empty: nothing

  // Of token i, at that place.
  double angle(int64_t i, int64_t place, size_t pair) const {
    const double phase = phases.empty() ? 0.0 : phases[pair];
    return position_of(positions, axes, i, place, pair) * inv_freq[pair] + phase;
  }

  float whole_q_scale_of(int64_t token) const {
    return whole_q_scale.empty() ? 1.0F : whole_q_scale[static_cast<size_t>(token)];
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
  // The same for all dimensions of q, also of a table that rotates none; empty: 1.
  Matrix whole_q_scale{};
  int64_t rotary_dim = 0;
  bool interleaved = false;
};

// Where the keys that a token sees begin or end: a place in the cache that goes along with the token's own,
// one by one or in chunks, between two bounds. It never falls as p grows.
struct KeyEdge {
  static constexpr int32_t kUnbounded = int32_t{1} << 30;  // behind every position
  int32_t offset = 0, chunk = 1;
  int32_t least = 0, most = kUnbounded;
  bool operator==(const KeyEdge&) const = default;

  template <class Int>
  constexpr Int at(Int p) const {
    const Int place = (chunk == 1 ? p : p / chunk * chunk) + offset;
    return place < least ? least : place > most ? most : place;
  }
};

// A token at place p of its sequence sees the keys at [begin.at(p), end.at(p)), none if that is empty, with
// its query rotated by `rope`. A key's place is where it lies in the cache, whatever position it is rotated
// to. Pages that no range reaches are not read, and need not be there.
struct KeyRange {
  KeyEdge begin, end;
  RopeTable rope;
  bool second = false;  // its keys are the second ones (KvLayer)

  // All keys up to the token's own, or with a window w > 0 the last w of them.
  static KeyRange causal(const RopeTable& rope, int64_t window) {
    const auto w = static_cast<int32_t>(window < KeyEdge::kUnbounded ? window : KeyEdge::kUnbounded);
    KeyRange seen{{}, {}, rope};
    (w > 0 ? seen.begin.offset : seen.begin.most) = w > 0 ? 1 - w : 0;
    seen.end.offset = 1;
    return seen;
  }
  // At least as many keys as n tokens in a row see together.
  int64_t most_keys(int64_t n) const {
    const int64_t bounds = int64_t{end.most} - begin.least;
    return begin.most < KeyEdge::kUnbounded
               ? bounds
               : std::min(bounds, n + end.offset - begin.offset + begin.chunk - 2);
  }
};

// A re-rotation of the cached keys of one sequence to other RoPE frequencies or positions.
struct KeyRotation {
  struct Angles {
    std::span<const double> inv_freq;
    std::span<const double> positions{};  // of all n_positions tokens, as in SequenceRope; may be fractions
  };
  void* const* pages = nullptr;     // as in StepSequence; null pages are skipped
  int64_t n_positions = 0;          // from 0 on
  Angles from, to;                  // to.positions empty: every token keeps its position
  std::span<const uint8_t> axes{};  // as in SequenceRope

  bool moves() const { return !to.positions.empty(); }
  std::span<const double> new_positions() const { return moves() ? to.positions : from.positions; }
  // The difference of the angles in double. A token that keeps its position p turns by p * (f_new - f_old),
  // never by the difference of two rounded angles.
  double angle(int64_t place, size_t pair) const {
    const double p = position_of(new_positions(), axes, place, place, pair);
    if (!moves()) return p * (to.inv_freq[pair] - from.inv_freq[pair]);
    return p * to.inv_freq[pair] -
           position_of(from.positions, axes, place, place, pair) * from.inv_freq[pair];
  }
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
  // Where every key lies once more, rotated to another position, for ranges that see it so; 0: nowhere.
  size_t second_k_offset = 0;

  void* keys(void* page) const { return static_cast<char*>(page) + k_offset; }
  KvLayer with_second_keys() const {
    KvLayer layer = *this;
    layer.k_offset = second_k_offset;
    return layer;
  }
  void* values(void* page) const { return static_cast<char*>(page) + v_offset; }

  // Its arrays in a page (keys, values, the values' scales, second keys): `bytes` for each position of a
  // head, those of one at offset + kv_index(head, position, 0, 1) * bytes.
  struct Rows {
    size_t offset, bytes;
  };
  std::vector<Rows> rows() const;
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
  void add_layer(int64_t n_kv_heads, int64_t head_dim, DType k_dtype, DType v_dtype,
                 bool second_keys = false);
  // Appends a layer that stores a row of `head_dim` values per position, which is key and value in one.
  void add_latent_layer(int64_t head_dim, DType dtype);
};

}  // namespace lariat
