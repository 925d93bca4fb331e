#pragma once
#include <array>
#include <span>
#include <vector>

#include "models/run/layer.h"
#include "models/spec/visible_range.h"

namespace lariat {

// Consecutive sequences with equal visible ranges; no ranges: keys up to the token's own, or the window.
struct VisibleGroup {
  std::span<const VisibleRange> ranges;
  size_t n_sequences = 0;
};

// Key ranges of a step, shared by all layers of one RoPE and window.
class AttentionGroups {
 public:
  explicit AttentionGroups(const ModelSpec& spec);

  // `activations` must outlive the groups' use.
  void build(const Step& step, std::span<const VisibleGroup> visible, const Activations& activations);
  std::span<const AttentionGroup> of(const AttentionSpec& attention) const;
  // nullptr: no sequence stores second keys.
  const RopeTable* second_rope() const { return second_rope_; }

 private:
  struct Kind {
    bool serves(const AttentionSpec& attention) const {
      return rope == attention.rope && window == attention.sliding_window;
    }

    int rope;
    int64_t window;
    std::vector<AttentionGroup> groups;
    std::vector<std::array<KeyRange, Backend::kMaxRanges>> ranges;
  };
  void add_group(Kind& kind, const AttentionGroup& group, std::span<const VisibleRange> visible,
                 const Activations& activations) const;

  size_t n_model_ropes_;
  std::vector<Kind> kinds_;
  const RopeTable* second_rope_ = nullptr;
};

}  // namespace lariat
