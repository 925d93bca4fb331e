#pragma once
#include <string>

#include "kernels/communicator.h"
#include "models/activations.h"
#include "models/trace.h"
#include "models/weights.h"

namespace lariat {

struct Layer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  KvLayer cache;
  AttentionParams attention;
  std::string name;  // for traces: "layers.3."
};

// Consecutive sequences with equal visible keys; their queries are rows [first_row, first_row + rows).
struct AttentionGroup {
  std::span<const StepSequence> sequences;
  int64_t first_row = 0, rows = 0;
  std::span<const KeyRange> ranges;
};
class AttentionGroups;  // models/positions/attention_groups.h

struct Pass {
  Backend& backend;
  const Step& step;
  const Activations& activations;
  const AttentionGroups& groups;
  const TraceFn& trace;           // empty: tracing is off
  Communicator* ranks = nullptr;  // sums a layer's outputs; null: one process
};

}  // namespace lariat
