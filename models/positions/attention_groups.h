#pragma once
#include <array>
#include <span>
#include <vector>

#include "models/layer.h"
#include "models/positions/visible_range.h"

namespace lariat {

// Consecutive sequences of a step whose tokens see the same ranges; no ranges: all keys up to the token's
// own, or the layer's window.
struct VisibleGroup {
  std::span<const VisibleRange> ranges;
  size_t n_sequences = 0;
};

// The key ranges of a step, made once for all layers of one RoPE and one window.
class AttentionGroups {
 public:
  explicit AttentionGroups(const ModelSpec& spec);

  // The groups of a step with these activations, which must outlive their use.
  void build(const Step& step, std::span<const VisibleGroup> visible, const Activations& activations);
  std::span<const AttentionGroup> of(const AttentionSpec& attention) const;
  // The table that second keys are rotated by; null: no sequence stores any.
  const RopeTable* second_rope() const { return second_rope_; }

 private:
  struct Kind {
    bool serves(const AttentionSpec& attention) const {
      return rope == attention.rope && window == attention.sliding_window;
    }

    int rope;
    int64_t window;
    std::vector<AttentionGroup> groups;
    std::vector<std::array<KeyRange, Backend::kMaxRanges>> ranges;  // of each group
  };
  void add_group(Kind& kind, const AttentionGroup& group, std::span<const VisibleRange> visible,
                 const Activations& activations) const;

  size_t n_model_ropes_;
  std::vector<Kind> kinds_;
  const RopeTable* second_rope_ = nullptr;
};

}  // namespace lariat
