#pragma once
#include <span>
#include <vector>

#include "engine/runtime/kv_cache.h"
#include "models/positions/position_method.h"

namespace lariat {

// The largest position that a token may be given.
inline constexpr int32_t kMaxPosition = 1 << 30;

// Continues positions of `axes` numbers per token up to n_tokens, on all axes from the largest so far.
void continue_positions(std::vector<double>& positions, size_t axes, size_t n_tokens);

// The RoPE positions of the tokens of one sequence: their indices, positions of M-RoPE, or positions of a
// position method.
class SequencePositions {
 public:
  explicit SequencePositions(PositionMethod method = {}) : method_(std::move(method)) {}
  const PositionMethod& method() const { return method_; }
  double stretch() const { return stretch_; }  // PositionMethod::stretch, as the second keys have it

  // M-RoPE: three positions (time, height, width) for each of the tokens from index `length` on. Later tokens
  // continue on all three axes from one above the largest.
  void set_mrope(std::span<const int32_t> positions, int64_t length);
  // The positions of set_mrope, perhaps of fewer or more tokens than the sequence has; empty: none were set.
  std::span<const double> mrope() const { return mrope_; }
  void restore(std::span<const int32_t> mrope, double stretch);
  void truncate(int64_t length);  // forgets positions of tokens from index `length` on

  // One above the largest position of the first `length` tokens.
  int64_t rope_length(int64_t length);
  // Positions of n tokens from index `first` on, as keys or for queries by a table of the method; empty:
  // their indices. M-RoPE: three for each. Valid until the next call; a method's are written to `memory`.
  std::span<const double> of(size_t table, int64_t first, int64_t n, std::vector<double>& memory);
  // Positions of the first `length` second keys at the current stretch.
  std::span<const double> second_keys(int64_t length);
  // The same at another stretch, which becomes the current one with set_stretch.
  std::vector<double> second_keys_at(double stretch, int64_t length) const;
  void set_stretch(double stretch, std::vector<double> second_keys);

 private:
  void fill(std::vector<double>& positions, double stretch, int64_t length) const;

  PositionMethod method_;
  std::vector<double> mrope_;
  std::vector<double> second_keys_;  // of the tokens requested so far
  double stretch_ = 1;
};

// One growing text: the keys and values of its tokens. Made by Session::new_sequence; the session must
// outlive it.
class Sequence {
 public:
  int64_t length() const { return cache_.length(); }
  const KvCache& cache() const { return cache_; }
  // Forgets everything after the first `length` tokens. Tokens that follow have the RoPE frequencies of their
  // own length: a dynamic scale shrinks with the sequence.
  void truncate(int64_t length);
  // The same for tokens that are read again: they keep the positions of M-RoPE that they were given.
  void rewind(int64_t length) { cache_.truncate(length); }
  // The sequence is the beginning of a text of at least `length` tokens that arrives in pieces: until it is
  // longer, its RoPE frequencies follow `length`. Without this call a dynamic scale computes the first
  // pieces with the frequencies of a shorter text, and no re-rotation changes their values in later layers.
  // With M-RoPE the length is one above the largest position.
  void expect(int64_t length) { expected_ = length; }
  int64_t expected() const { return expected_; }
  // Sets the positions of M-RoPE for the tokens that are read next: time, height and width of each, one token
  // after the other. Throws Error when the model has no M-RoPE, or for a negative position.
  void set_mrope_positions(std::span<const int32_t> positions);
  const SequencePositions& positions() const { return positions_; }
  const RopeScaling& rope() const { return rope_; }
  const PositionMethod& method() const { return positions_.method(); }

 private:
  friend class Session;
  friend class StepBuilder;
  Sequence(KvPool& pool, RopeScaling rope, PositionMethod method)
      : cache_(pool, rope_frequencies(rope, 0)), rope_(std::move(rope)), positions_(std::move(method)) {}
  void drop_unseen();
  KvCache cache_;
  RopeScaling rope_;
  SequencePositions positions_;
  int64_t expected_ = 0;
};

}  // namespace lariat
