#pragma once
#include <cstring>
#include <deque>

#include "kernels/backend.h"

namespace lariat {

// Every op as the formula reads: scalar loops, float64 inside, one thread. For tests, never optimised.
// It is a whole Backend, so a decoder can run on it end to end.
class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  std::string description() const override { return "float64 scalar reference"; }

  Buffer allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override;
  void copy_out(void* host_dst, const void* src, size_t bytes) override;
  void copy(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }
  Matrix load_weight(const Matrix& host, DType dtype) override;
  bool quantizes() const override { return true; }

  void embed(std::span<const int32_t> tokens, const Matrix& table, const Matrix& out) override;
  void rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) override;
  void add_rms_norm(const Matrix& residual, const Matrix& delta, const Matrix& weight, float eps,
                    const Matrix& out) override;
  void add(const Matrix& x, const Matrix& delta) override;
  void matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
              const Matrix& out) override;
  void rope_table(int64_t first_position, std::span<const double> inv_freq, const RopeTable& table) override;
  void qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& post,
                    const RopeTable& rope, const KvLayer& cache, int64_t first_position) override;
  void attention(const Matrix& q, const RopeTable& rope, const KvLayer& cache, int64_t first_position,
                 const AttentionParams& shape, const Matrix& out) override;
  void rerotate_keys(std::span<const KvLayer> layers, int64_t n_positions,
                     std::span<const double> delta_inv_freq, bool interleaved) override;
  void swiglu(const Matrix& gate, const Matrix& up) override;
  void argmax(const Matrix& logits, std::span<int32_t> ids) override;
  void sample(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
              std::span<int32_t> ids) override;
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override;

 private:
  std::deque<Buffer> converted_;
};

}  // namespace lariat
