#pragma once
#include <string>

#include "models/activations.h"
#include "models/trace.h"
#include "models/weights.h"

namespace lariat {

// A decoder layer with all that a forward pass needs of it.
struct Layer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  KvLayer cache;              // its part of every page of the KV cache
  AttentionParams attention;  // of its heads over that
  std::string name;           // as a trace has it: "layers.3."
};

// Consecutive sequences of a step, whose queries are the rows [first_row, first_row + rows), and the keys
// that their tokens see.
struct AttentionGroup {
  std::span<const StepSequence> sequences;
  int64_t first_row = 0, rows = 0;
  std::span<const KeyRange> ranges;
};
class AttentionGroups;  // models/positions/attention_groups.h

// One forward pass, as its layers see it.
struct Pass {
  Backend& backend;
  const Step& step;
  const Activations& activations;
  const AttentionGroups& groups;
  const TraceFn& trace;  // empty: nobody looks
};

}  // namespace lariat
