#include "engine/runtime/step_builder.h"

#include <algorithm>

namespace lariat {

StepBuilder::StepBuilder(const ModelSpec& spec, std::span<const RopeScaling> ropes)
    : spec_(spec), n_model_ropes_(ropes.size()), ropes_(ropes.size()) {
  for (const RopeScaling& rope : ropes.subspan(1)) fixed_frequencies_.push_back(rope_frequencies(rope, 0));
}

void StepBuilder::make_room(const PositionMethod& method) {
  const size_t further = std::max<size_t>(method.positions.size(), 1) - 1;
  ropes_.resize(std::max(ropes_.size(), n_model_ropes_ + further));
}

void StepBuilder::clear() {
  tokens_.clear();
  sequences_.clear();
  for (auto& of_sequences : ropes_) of_sequences.clear();
  visible_.clear();
}

// Query factors of the model times the method's temperature, one per token from index `first` on; empty: 1.
std::span<const float> StepBuilder::query_scales(const Sequence& sequence, int64_t first, int64_t n_tokens) {
  query_scales_.resize(std::max(query_scales_.size(), sequences_.size()));
  std::vector<float>& scales = query_scales_[sequences_.size() - 1];
  scales.clear();
  const auto& temperature = sequence.method().temperature;
  if (!spec_.scales_queries() && !temperature) return {};
  const float of_scores =
      spec_.scores_take_mscale ? static_cast<float>(rope_score_scale(sequence.rope())) : 1.0F;
  for (int64_t i = first; i < first + n_tokens; ++i) {
    const double of_method = temperature ? temperature(i, sequence.positions().stretch()) : 1.0;
    scales.push_back(of_scores * static_cast<float>(spec_.query_scale.at(i) * of_method));
  }
  return scales;
}

// transformers scales cos and sin of q and k by the attention factor. Keys here are pure rotations, so q
// carries the squared factor.
SequenceRope StepBuilder::with_scales(const RopeFrequencies& of, std::span<const float> query_scales) const {
  const double factor = spec_.norms_after_rope() ? 1.0 : of.attention_factor;
  SequenceRope rope{of.inv_freq, static_cast<float>(factor * factor)};
  rope.whole_q_scale = query_scales;
  return rope;
}

void StepBuilder::add(Sequence& sequence, int64_t first, std::span<const int32_t> tokens) {
  const KvCache& cache = sequence.cache_;
  const auto n_tokens = std::ssize(tokens);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  sequences_.push_back({first, n_tokens, cache.pages()});
  const std::span<const float> scales = query_scales(sequence, first, n_tokens);
  for (size_t r = 1; r < n_model_ropes_; ++r)
    ropes_[r].push_back(with_scales(fixed_frequencies_[r - 1], scales));
  // Table 0 rotates keys, further tables queries. A table that the method lacks uses the positions of the
  // keys.
  const size_t n_tables = ropes_.size() - n_model_ropes_ + 1, begin = (sequences_.size() - 1) * n_tables;
  positions_.resize(std::max(positions_.size(), begin + n_tables));
  SequenceRope keys = with_scales(cache.frequencies(), scales);
  for (size_t t = 0; t < n_tables; ++t) {
    SequenceRope& rope = ropes_[t == 0 ? 0 : n_model_ropes_ - 1 + t].emplace_back(keys);
    rope.positions = sequence.positions_.of(t, first, n_tokens, positions_[begin + t]);
    if (!sequence.positions_.mrope().empty()) rope.axes = spec_.mrope_axes;
  }
  if (const auto& far = sequence.method().far) {
    far_.resize(std::max(far_.size(), sequences_.size()));
    const auto& [inv_freq, phases] = far_[sequences_.size() - 1] =
        far(keys.inv_freq, sequence.rope(), sequence.positions().stretch());
    SequenceRope& queries = ropes_[n_model_ropes_].back();
    queries.inv_freq = ropes_[n_model_ropes_ + 1].back().inv_freq = inv_freq;
    queries.phases = phases;
  }
  const auto ranges = sequence.method().ranges_at(sequence.positions_.stretch());
  if (visible_.empty() || !std::ranges::equal(visible_.back().ranges, ranges))
    visible_.push_back({ranges, 0});
  ++visible_.back().n_sequences;
}

}  // namespace lariat
