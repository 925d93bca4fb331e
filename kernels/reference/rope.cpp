#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

int64_t rerotate_key(void* keys, const KvLayer& layer, int64_t head, int64_t position,
                     const KeyRotation& rotation, bool interleaved) {
  const std::span<const double> inv_freq = rotation.to.inv_freq;
  std::vector<double> key(static_cast<size_t>(layer.head_dim));
  for (int64_t d = 0; d < layer.head_dim; ++d) {
    key[static_cast<size_t>(d)] = load_f32(keys, layer.k_dtype, kv_index(head, position, d, layer.head_dim));
  }
  for (size_t pair = 0; pair < inv_freq.size(); ++pair) {
    const double angle = rotation.angle(position, pair);
    reference::rotate_pair(key.data(), static_cast<int64_t>(pair), static_cast<int64_t>(2 * inv_freq.size()),
                           interleaved, std::cos(angle), std::sin(angle));
  }
  return reference::store_head(key, keys, layer.k_dtype, head, position,
                               static_cast<int64_t>(2 * inv_freq.size()));
}

}  // namespace

void ReferenceBackend::rope_table(const Step& step, std::span<const SequenceRope> ropes,
                                  const RopeTable& table) {
  int64_t row = 0;
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const StepSequence& sequence = step.sequences[s];
    const SequenceRope& rope = ropes[s];
    for (int64_t i = 0; i < sequence.n_tokens; ++i, ++row) {
      for (size_t j = 0; j < rope.inv_freq.size(); ++j) {
        const double angle = rope.angle(i, sequence.first_position + i, j);
        reference::put(table.cos, row, static_cast<int64_t>(j), std::cos(angle));
        reference::put(table.sin, row, static_cast<int64_t>(j), std::sin(angle));
      }
      reference::put(table.q_scale, row, 0, rope.q_scale);
      if (table.whole_q_scale) reference::put(table.whole_q_scale, row, 0, rope.whole_q_scale_of(i));
    }
  }
}

void ReferenceBackend::rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                                     bool interleaved) {
  for (const KeyRotation& sequence : sequences) {
    for (const KvLayer& layer : layers) {
      for (int64_t position = 0; position < sequence.n_positions; ++position) {
        if (sequence.pages[position / kKvPage] == nullptr) continue;
        void* keys = layer.keys(sequence.pages[position / kKvPage]);
        for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
          saturated_.keys += rerotate_key(keys, layer, head, position, sequence, interleaved);
        }
      }
    }
  }
}

}  // namespace lariat
