#pragma once
#include <string>

#include "kernels/communicator.h"
#include "models/activations.h"
#include "models/trace.h"
#include "models/weights.h"

namespace lariat {

// A decoder layer with its weights, its part of the cache and its attention parameters.
struct Layer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  KvLayer cache;              // the layer's part of every KV cache page
  AttentionParams attention;  // attention over the cache
  std::string name;           // prefix of trace names: "layers.3."
};

// Consecutive sequences with equal visible keys; their queries are rows [first_row, first_row + rows).
struct AttentionGroup {
  std::span<const StepSequence> sequences;
  int64_t first_row = 0, rows = 0;
  std::span<const KeyRange> ranges;
};
class AttentionGroups;  // models/positions/attention_groups.h

// Arguments of one forward pass, shared by all layers.
struct Pass {
  Backend& backend;
  const Step& step;
  const Activations& activations;
  const AttentionGroups& groups;
  const TraceFn& trace;  // empty: tracing is off
  Communicator* ranks = nullptr;  // sums a layer's outputs; null: one process
};

}  // namespace lariat
