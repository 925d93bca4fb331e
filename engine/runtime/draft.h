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

  // Guesses up to `most` tokens after `text`, greedily, ids below `vocab`. row_cost: see Lookup::guess; stops
  // where the product of the draft's probabilities falls below row_cost and the cost of another guess.
  // model_bytes: read by a decode step of the larger model.
  std::vector<int32_t> guess(std::span<const int32_t> text, int64_t most, double row_cost, int64_t vocab,
                             size_t model_bytes);

 private:
  Session& session_;
  Sequence sequence_;
  std::vector<int32_t> tokens_{};  // of the sequence
};

}  // namespace lariat
