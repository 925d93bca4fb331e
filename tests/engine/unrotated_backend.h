#pragma once
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "tests/engine/forwarding_backend.h"

namespace lariat::test {

// Reference for dynamic scalings, which the YaRN paper calls the correct implementation: caches unrotated f32
// keys and rotates all in double at every attention.
class UnrotatedBackend final : public ForwardingBackend {
 public:
  explicit UnrotatedBackend(Backend& inner) : ForwardingBackend(inner) {}

  std::string name() const override { return "unrotated " + inner_.name(); }

  void rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) override {
    Frequencies& inv_freq = inv_freq_[table.cos.data];
    inv_freq.clear();
    for (const SequenceRope& rope : ropes) inv_freq.emplace_back(rope.inv_freq.begin(), rope.inv_freq.end());
    if (!ropes.empty() && !ropes[0].positions.empty()) {
      positions_.resize(static_cast<size_t>(3 * step.sequences[0].first_position));
      positions_.insert(positions_.end(), ropes[0].positions.begin(), ropes[0].positions.end());
      axes_ = ropes[0].axes;
    }
    inner_.rope_table(step, ropes, table);
  }

  void qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                    const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) override {
    const auto size = static_cast<size_t>(k.rows * rope.rotary_dim / 2);
    std::vector<float> ones(size, 1.0F), zeros(size, 0.0F);
    RopeTable still = rope;
    still.cos = Matrix(ones.data(), DType::kF32, k.rows, rope.rotary_dim / 2);
    still.sin = Matrix(zeros.data(), DType::kF32, k.rows, rope.rotary_dim / 2);
    inner_.qkv_to_cache(step, q, k, v, epilogue, still, layer);
  }

  void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges, const KvLayer& layer,
                 const AttentionParams& params, const Matrix& out) override {
    const auto layer_floats = static_cast<size_t>(layer.n_kv_heads * kKvPage * layer.head_dim);
    KvLayer rotated = layer;
    rotated.k_offset = 0;
    rotated.v_offset = layer_floats * sizeof(float);
    std::vector<std::vector<float>> copies;
    std::vector<std::vector<void*>> tables;
    std::vector<StepSequence> sequences(step.sequences.begin(), step.sequences.end());
    const RopeTable& rope = ranges[0].rope;
    const Frequencies& inv_freq = inv_freq_[rope.cos.data];
    for (size_t s = 0; s < sequences.size(); ++s) {
      StepSequence& sequence = sequences[s];
      const int64_t n_positions = sequence.first_position + sequence.n_tokens;
      std::vector<void*>& table = tables.emplace_back();
      for (int64_t page = 0; page * kKvPage < n_positions; ++page) {
        std::vector<float>& copy = copies.emplace_back(2 * layer_floats);
        std::memcpy(copy.data(), layer.keys(sequence.pages[page]), layer_floats * sizeof(float));
        std::memcpy(copy.data() + layer_floats, layer.values(sequence.pages[page]),
                    layer_floats * sizeof(float));
        table.push_back(copy.data());
      }
      for (int64_t p = 0; p < n_positions; ++p)
        rotate(rotated, table[static_cast<size_t>(p / kKvPage)], p, s, rope, inv_freq);
      sequence.pages = table.data();
    }
    inner_.attention({step.tokens, sequences}, q, ranges, rotated, params, out);
  }

  void rerotate_keys(std::span<const KeyRotation>, std::span<const KvLayer>, bool) override {}

 private:
  using Frequencies = std::vector<std::vector<double>>;

  void rotate(const KvLayer& layer, void* page, int64_t position, size_t sequence, const RopeTable& rope,
              const Frequencies& inv_freq) const {
    const int64_t half = rope.rotary_dim / 2;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
      float* key = static_cast<float*>(layer.keys(page)) + kv_index(head, position, 0, layer.head_dim);
      for (int64_t i = 0; i < half; ++i) {
        float& a = rope.interleaved ? key[2 * i] : key[i];
        float& b = rope.interleaved ? key[2 * i + 1] : key[i + half];
        const auto pair = static_cast<size_t>(i);
        const double at = axes_.empty() ? static_cast<double>(position)
                                        : positions_[static_cast<size_t>(3 * position) + axes_[pair]];
        const double angle = at * inv_freq[sequence][pair];
        const double x = a, y = b;
        a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
        b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
      }
    }
  }

  std::vector<double> positions_;
  std::span<const uint8_t> axes_;
  std::map<const void*, Frequencies> inv_freq_;  // by cos table
};

}  // namespace lariat::test
