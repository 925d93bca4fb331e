#include "models/run/attention_groups.h"

#include <algorithm>

namespace lariat {
namespace {

RopeTable rows_of(RopeTable table, int64_t first, int64_t n) {
  for (Matrix* matrix : {&table.cos, &table.sin, &table.q_scale, &table.whole_q_scale})
    *matrix = matrix->row_range(first, n);
  return table;
}

}  // namespace

AttentionGroups::AttentionGroups(const ModelSpec& spec) : n_model_ropes_(spec.ropes.size()) {
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    const bool known = std::ranges::any_of(kinds_, [&](const Kind& kind) { return kind.serves(attention); });
    if (!known) kinds_.push_back({attention.rope, attention.sliding_window, {}, {}});
  }
}

void AttentionGroups::build(const Step& step, std::span<const VisibleGroup> visible,
                            const Activations& activations) {
  second_rope_ = nullptr;
  for (const VisibleGroup& group : visible) {
    if (const size_t second = second_keys_of(group.ranges); second > 0)
      second_rope_ = &activations.ropes[n_model_ropes_ - 1 + second];
  }
  for (Kind& kind : kinds_) {
    kind.groups.clear();
    kind.ranges.resize(visible.size());
    std::span<const StepSequence> sequences = step.sequences;
    int64_t row = 0;
    for (const auto& [ranges, n_sequences] : visible) {
      AttentionGroup group{sequences.first(n_sequences), row, 0, {}};
      for (const StepSequence& sequence : group.sequences) group.rows += sequence.n_tokens;
      add_group(kind, group, ranges, activations);
      row += group.rows;
      sequences = sequences.subspan(n_sequences);
    }
  }
}

// Layers without RoPE see the same keys, unrotated.
void AttentionGroups::add_group(Kind& kind, const AttentionGroup& group,
                                std::span<const VisibleRange> visible, const Activations& activations) const {
  auto& ranges = kind.ranges[kind.groups.size()];
  const RopeTable table = rows_of(activations.rope(kind.rope), group.first_row, group.rows);
  const bool rotates = kind.rope >= 0;
  for (size_t i = 0; i < visible.size(); ++i) {
    const auto& [begin, end, own, second] = visible[i];
    const RopeTable own_table =
        own > 0 && rotates ? rows_of(activations.ropes[n_model_ropes_ - 1 + own], group.first_row, group.rows)
                           : table;
    ranges[i] = {begin, end, own_table, second > 0 && rotates};
  }
  if (visible.empty()) ranges[0] = KeyRange::causal(table, kind.window);
  kind.groups.push_back(group);
  kind.groups.back().ranges = std::span(ranges).first(std::max<size_t>(visible.size(), 1));
}

std::span<const AttentionGroup> AttentionGroups::of(const AttentionSpec& attention) const {
  return std::ranges::find_if(kinds_, [&](const Kind& kind) { return kind.serves(attention); })->groups;
}

}  // namespace lariat
