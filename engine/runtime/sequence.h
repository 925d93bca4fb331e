#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "engine/runtime/kv_cache.h"
#include "models/spec/position_method.h"

namespace lariat {

inline constexpr int32_t kMaxPosition = 1 << 30;

// Extends positions to n_tokens tokens of `axes` numbers, counting up from the largest.
void continue_positions(std::vector<double>& positions, size_t axes, size_t n_tokens);

// RoPE positions: indices, M-RoPE positions or positions of a position method.
class SequencePositions {
 public:
  explicit SequencePositions(PositionMethod method = {}) : method_(std::move(method)) {}
  const PositionMethod& method() const { return method_; }
  double stretch() const { return stretch_; }  // PositionMethod::stretch of the second keys

  // M-RoPE: time, height and width of the tokens from index `length` on. Later tokens count up on all axes.
  void set_mrope(std::span<const int32_t> positions, int64_t length);
  // Argument of set_mrope, possibly fewer or more than the tokens; empty: none.
  std::span<const double> mrope() const { return mrope_; }
  void restore(std::span<const int32_t> mrope, double stretch);
  void truncate(int64_t length);  // from index `length` on

  // Largest position of the first `length` tokens, plus 1.
  int64_t rope_length(int64_t length);
  // Positions of n tokens from index `first` on in a table of the method (0: keys); empty: their indices.
  // M-RoPE: three per token. Valid until the next call; a method's positions are in `memory`.
  std::span<const double> of(size_t table, int64_t first, int64_t n, std::vector<double>& memory);
  // Positions at the current stretch.
  std::span<const double> second_keys(int64_t length);
  // Argument of set_stretch.
  std::vector<double> second_keys_at(double stretch, int64_t length) const;
  void set_stretch(double stretch, std::vector<double> second_keys) {
    stretch_ = stretch;
    second_keys_ = std::move(second_keys);
  }

 private:
  void fill(std::vector<double>& positions, double stretch, int64_t length) const;

  PositionMethod method_;
  std::vector<double> mrope_;
  std::vector<double> second_keys_;  // computed so far
  double stretch_ = 1;
};

// KV cache and positions of one text. The session must outlive it.
class Sequence {
 public:
  int64_t length() const { return cache_.length(); }
  const KvCache& cache() const { return cache_; }
  // A dynamic scale shrinks with the sequence.
  void truncate(int64_t length);
  // Same for tokens that are computed again: keeps M-RoPE positions.
  void rewind(int64_t length) { cache_.truncate(length); }
  // Announces a text of at least `length` tokens that arrives in pieces: RoPE frequencies follow `length`
  // until the text is longer. Otherwise later layers keep values computed with frequencies of a shorter text.
  // M-RoPE: the largest position plus 1.
  void expect(int64_t length) { expected_ = length; }
  int64_t expected() const { return expected_; }
  // The same for a text of n tokens, whose M-RoPE positions are set.
  void expect_tokens(int64_t n) { expected_ = std::max(expected_, positions_.rope_length(n)); }
  // M-RoPE positions of the next tokens. Throws Error without M-RoPE or for a negative position.
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
