#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/backend.h"

namespace lariat::test {

// The reference for dynamic scalings (invariant I3): a backend whose cache holds keys as they came out of the
// projection, unrotated, and which rotates all of them afresh, in double, at every attention. What the YaRN
// paper calls the correct implementation. Everything else is the backend it wraps. f32 caches only.
class UnrotatedBackend final : public Backend {
 public:
  explicit UnrotatedBackend(Backend& inner) : inner_(inner) {}

  std::string name() const override { return "unrotated " + inner_.name(); }
  std::string description() const override { return inner_.description(); }
  Buffer allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void release(void* data, size_t bytes) noexcept override { inner_.release(data, bytes); }
  void copy_in(void* dst, const void* src, size_t bytes) override { inner_.copy_in(dst, src, bytes); }
  void copy_out(void* dst, const void* src, size_t bytes) override { inner_.copy_out(dst, src, bytes); }
  void copy(void* dst, const void* src, size_t bytes) override { inner_.copy(dst, src, bytes); }
  Matrix load_weight(const Matrix& host, DType dtype) override { return inner_.load_weight(host, dtype); }
  void embed(std::span<const int32_t> tokens, const Matrix& table, const Matrix& out) override {
    inner_.embed(tokens, table, out);
  }
  void rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) override {
    inner_.rms_norm(x, weight, eps, out);
  }
  void add_rms_norm(const Matrix& residual, const Matrix& delta, const Matrix& weight, float eps,
                    const Matrix& out) override {
    inner_.add_rms_norm(residual, delta, weight, eps, out);
  }
  void add(const Matrix& x, const Matrix& delta) override { inner_.add(x, delta); }
  void matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
              const Matrix& out) override {
    inner_.matmul(x, w, bias, compute, out);
  }
  void swiglu(const Matrix& gate, const Matrix& up) override { inner_.swiglu(gate, up); }
  void argmax(const Matrix& logits, std::span<int32_t> ids) override { inner_.argmax(logits, ids); }
  void sample(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
              std::span<int32_t> ids) override {
    inner_.sample(logits, how, uniforms, ids);
  }
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override {
    inner_.token_nll(logits, targets, nll);
  }

  void rope_table(int64_t first_position, std::span<const double> inv_freq, const RopeTable& table) override {
    inv_freq_.assign(inv_freq.begin(), inv_freq.end());
    inner_.rope_table(first_position, inv_freq, table);
  }

  void qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& post,
                    const RopeTable& rope, const KvLayer& cache, int64_t first_position) override {
    const auto size = static_cast<size_t>(q.rows * rope.rotary_dim / 2);
    std::vector<float> ones(size, 1.0F), zeros(size, 0.0F);
    RopeTable still = rope;
    still.cos = Matrix(ones.data(), DType::kF32, q.rows, rope.rotary_dim / 2);
    still.sin = Matrix(zeros.data(), DType::kF32, q.rows, rope.rotary_dim / 2);
    inner_.qkv_to_cache(q, k, v, post, still, cache, first_position);
  }

  void attention(const Matrix& q, const RopeTable& rope, const KvLayer& cache, int64_t first_position,
                 const AttentionParams& shape, const Matrix& out) override {
    const int64_t n_positions = first_position + q.rows;
    const auto n_blocks = static_cast<size_t>((n_positions + kKvPage - 1) / kKvPage);
    const auto block_floats = static_cast<size_t>(cache.n_kv_heads * kKvPage * cache.head_dim);
    std::vector<std::vector<float>> rotated(n_blocks);
    std::vector<void*> k_blocks;
    for (size_t b = 0; b < n_blocks; ++b) {
      rotated[b].resize(block_floats);
      std::memcpy(rotated[b].data(), cache.k_blocks[b], block_floats * sizeof(float));
      k_blocks.push_back(rotated[b].data());
    }
    KvLayer turned = cache;
    turned.k_blocks = k_blocks.data();
    for (int64_t p = 0; p < n_positions; ++p) rotate(turned, p, rope);
    inner_.attention(q, rope, turned, first_position, shape, out);
  }

  void rerotate_keys(std::span<const KvLayer>, int64_t, std::span<const double>, bool) override {
  }  // nothing to turn

 private:
  void rotate(const KvLayer& cache, int64_t position, const RopeTable& rope) const {
    const int64_t half = rope.rotary_dim / 2;
    for (int64_t head = 0; head < cache.n_kv_heads; ++head) {
      float* key = static_cast<float*>(cache.k_blocks[position / kKvPage]) +
                   kv_index(head, position, 0, cache.head_dim);
      for (int64_t i = 0; i < half; ++i) {
        float& a = rope.interleaved ? key[2 * i] : key[i];
        float& b = rope.interleaved ? key[2 * i + 1] : key[i + half];
        const double angle = static_cast<double>(position) * inv_freq_[static_cast<size_t>(i)];
        const double x = a, y = b;
        a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
        b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
      }
    }
  }

  Backend& inner_;
  std::vector<double> inv_freq_;  // of the sequence being run: rope_table comes before its layers
};

}  // namespace lariat::test
