// The ops that make and apply angles: rope_table and rerotate_keys.
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

int64_t rerotate_key(void* keys, const KvLayer& layer, int64_t head, int64_t position,
                     const KeyRotation& rotation, bool interleaved) {
  const std::span<const double> delta_inv_freq = rotation.delta_inv_freq;
  std::vector<double> key(static_cast<size_t>(layer.head_dim));
  for (int64_t d = 0; d < layer.head_dim; ++d) {
    key[static_cast<size_t>(d)] = load_f32(keys, layer.k_dtype, kv_index(head, position, d, layer.head_dim));
  }
  for (size_t pair = 0; pair < delta_inv_freq.size(); ++pair) {
    const int64_t at = rotation.positions.empty()
                           ? position
                           : rotation.positions[static_cast<size_t>(3 * position + rotation.axes[pair])];
    const double angle = static_cast<double>(at) * delta_inv_freq[pair];
    reference::rotate_pair(key.data(), static_cast<int64_t>(pair),
                           static_cast<int64_t>(2 * delta_inv_freq.size()), interleaved, std::cos(angle),
                           std::sin(angle));
  }
  return reference::store_head(key, keys, layer.k_dtype, head, position,
                               static_cast<int64_t>(2 * delta_inv_freq.size()));
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
        const int64_t position = rope.positions.empty()
                                     ? sequence.first_position + i
                                     : rope.positions[static_cast<size_t>(3 * i + rope.axes[j])];
        const double angle = static_cast<double>(position) * rope.inv_freq[j];
        reference::put(table.cos, row, static_cast<int64_t>(j), std::cos(angle));
        reference::put(table.sin, row, static_cast<int64_t>(j), std::sin(angle));
      }
      const auto p = static_cast<double>(sequence.first_position + i),
                 ctx = static_cast<double>(rope.log_ctx);
      const double lengths = rope.log_steps ? 1.0 + std::floor(p / ctx) : std::max(1.0, (p + 1.0) / ctx);
      const double growth = rope.log_beta * std::log(lengths);
      reference::put(table.q_scale, row, 0, rope.q_scale * (1.0 + growth));
    }
  }
}

void ReferenceBackend::rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                                     bool interleaved) {
  for (const KeyRotation& sequence : sequences) {
    for (const KvLayer& layer : layers) {
      for (int64_t position = 0; position < sequence.n_positions; ++position) {
        void* keys = layer.keys(sequence.pages[position / kKvPage]);
        for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
          saturated_.keys += rerotate_key(keys, layer, head, position, sequence, interleaved);
        }
      }
    }
  }
}

}  // namespace lariat
