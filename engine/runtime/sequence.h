#pragma once
#include <span>
#include <vector>

#include "engine/runtime/kv_cache.h"
#include "models/positions/position_method.h"

namespace lariat {

inline constexpr int32_t kMaxPosition = 1 << 30;

// Extends positions to n_tokens tokens of `axes` numbers each, counting up from the largest position.
void continue_positions(std::vector<double>& positions, size_t axes, size_t n_tokens);

// RoPE positions of a sequence's tokens: indices, M-RoPE positions or positions of a position method.
class SequencePositions {
 public:
  explicit SequencePositions(PositionMethod method = {}) : method_(std::move(method)) {}
  const PositionMethod& method() const { return method_; }
  double stretch() const { return stretch_; }  // PositionMethod::stretch of the second keys

  // M-RoPE: sets time, height and width of the tokens from index `length` on. Later tokens count up on all
  // three axes.
  void set_mrope(std::span<const int32_t> positions, int64_t length);
  // Positions set by set_mrope, possibly fewer or more than the sequence has tokens; empty: none.
  std::span<const double> mrope() const { return mrope_; }
  void restore(std::span<const int32_t> mrope, double stretch);
  void truncate(int64_t length);  // removes positions of tokens from index `length` on

  // Largest position of the first `length` tokens, plus 1.
  int64_t rope_length(int64_t length);
  // Positions of n tokens from index `first` on in a table of the method (0: keys); empty: their indices.
  // M-RoPE: three per token. Valid until the next call; a method's positions are in `memory`.
  std::span<const double> of(size_t table, int64_t first, int64_t n, std::vector<double>& memory);
  // Positions of the first `length` second keys at the current stretch.
  std::span<const double> second_keys(int64_t length);
  // Positions of the second keys at another stretch, for set_stretch.
  std::vector<double> second_keys_at(double stretch, int64_t length) const;
  void set_stretch(double stretch, std::vector<double> second_keys);

 private:
  void fill(std::vector<double>& positions, double stretch, int64_t length) const;

  PositionMethod method_;
  std::vector<double> mrope_;
  std::vector<double> second_keys_;  // computed so far
  double stretch_ = 1;
};

// One growing text: its KV cache and positions. Session::new_sequence creates it; the session must outlive
// it.
class Sequence {
 public:
  int64_t length() const { return cache_.length(); }
  const KvCache& cache() const { return cache_; }
  // Removes all but the first `length` tokens. A dynamic scale shrinks with the sequence.
  void truncate(int64_t length);
  // Same for tokens that are computed again: keeps their M-RoPE positions.
  void rewind(int64_t length) { cache_.truncate(length); }
  // Announces a text of at least `length` tokens that arrives in pieces: RoPE frequencies follow `length`
  // until the text is longer. Without this call, early pieces use the frequencies of a shorter text, and
  // later layers keep values computed with them. M-RoPE: `length` is the largest position plus 1.
  void expect(int64_t length) { expected_ = length; }
  int64_t expected() const { return expected_; }
  // Sets the M-RoPE positions (time, height, width) of the next tokens. Throws Error without M-RoPE or for a
  // negative position.
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
