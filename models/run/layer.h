#pragma once
#include <string>

#include "kernels/communicator.h"
#include "models/load/weights.h"
#include "models/run/activations.h"
#include "models/run/divided_cache.h"
#include "models/run/trace.h"

namespace lariat {

struct Layer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  KvLayer cache;
  AttentionParams attention;
  std::string name;  // for traces: "layers.3."
  size_t index = 0;
  Xielu xielu{};
};

// Consecutive sequences with equal visible keys; their queries are rows [first_row, first_row + rows).
struct AttentionGroup {
  std::span<const StepSequence> sequences;
  int64_t first_row = 0, rows = 0;
  std::span<const KeyRange> ranges;
};
class AttentionGroups;

struct Pass {
  Backend& backend;
  const Step& step;
  const Activations& activations;
  const AttentionGroups& groups;
  const TraceFn& trace;  // empty: tracing is off
  const Split& split;
  Communicator* ranks = nullptr;  // sums a layer's outputs; null: one process
  DividedCache* cache = nullptr;  // null: this rank's heads, or one process

  // Norm across all heads: gathers x, normalises it on every rank, keeps this rank's columns.
  void norm_all_heads(const Layer& layer, const Matrix& x, const Norm& norm,
                      std::vector<Share> LayerSplit::*heads) const;
  // Backend::attention, with the pages of all ranks.
  void attention(const Layer& layer, const Step& of, const Matrix& q, std::span<const KeyRange> ranges,
                 const Matrix& out) const;
};

}  // namespace lariat
