#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runtime/session.h"

namespace lariat {

// Guesses the next tokens of one text by a smaller model (speculative decoding, arXiv 2211.17192,
// 2302.01318).
class Draft {
 public:
  // session: of the smaller model; must outlive the draft.
  explicit Draft(Session& session) : session_(session), sequence_(session.new_sequence()) {}

  // Guesses up to `most` tokens after `text` of `model`, greedily. row_cost: see Lookup::guess. Stops where
  // the product of the draft's probabilities falls below row_cost and the cost of another guess. No guesses
  // after a token outside the draft's vocabulary.
  std::vector<int32_t> guess(std::span<const int32_t> text, int64_t most, double row_cost,
                             const Model& model);

 private:
  Session& session_;
  Sequence sequence_;
  std::vector<int32_t> tokens_{};  // of the sequence
};

}  // namespace lariat
