#pragma once
#include <cstring>

#include "kernels/backend.h"
#include "kernels/cpu/rope_angles.h"

namespace lariat {

// How often each of the two kernels of an op was chosen, for tests that assert what they went through:
// products of float weights (one per call), and attention (one per call and sequence).
struct CpuPaths {
  int64_t gemv = 0, gemm = 0;
  int64_t attention_stream = 0, attention_block = 0;
};

// The embedded default: plain host memory, Highway for vectors (best instruction set chosen at run time),
// OpenMP for threads. One op per file in this folder.
class CpuBackend final : public Backend {
 public:
  // threads: 0 takes every core this process may use.
  explicit CpuBackend(int threads = 0);

  int threads() const { return threads_; }
  const CpuPaths& paths() const { return paths_; }  // since this backend was made
  std::string name() const override { return "cpu"; }
  std::string description() const override;
  Limits measure_limits(DType dtype) override;  // about a second

  Buffer allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override;
  void copy_out(void* host_dst, const void* src, size_t bytes) override;
  void copy(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }
  Weight load_weight(const Matrix& host, DType dtype) override;
  bool quantizes() const override { return true; }

  void embed(std::span<const int32_t> tokens, const Matrix& table, float scale, const Matrix& out) override;
  void rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) override;
  void add_rms_norm(const Matrix& residual, const Matrix& delta, float scale, const Matrix& weight, float eps,
                    const Matrix& out) override;
  void matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
              const Matrix& out) override;
  void begin_step(std::span<const StepSequence> sequences) override { step_ = sequences; }
  void rope_table(std::span<const SequenceRope> ropes, const RopeTable& table) override;
  void qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& epilogue,
                    const RopeTable& rope, const KvLayer& layer) override;
  void attention(const Matrix& q, const RopeTable& rope, const KvLayer& layer, const AttentionParams& params,
                 const Matrix& out) override;
  void rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                     bool interleaved) override;
  void glu(const Matrix& gate, const Matrix& up, Activation activation) override;
  void soft_cap(const Matrix& x, float scale, float cap) override;
  void argmax(const Matrix& logits, std::span<int32_t> ids) override;
  void sample(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
              std::span<int32_t> ids) override;
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override;

 private:
  // At least `bytes` of memory for the op that runs; what it holds is lost with the next call.
  void* scratch(size_t bytes);

  int threads_;
  CpuPaths paths_;
  std::span<const StepSequence> step_;
  Buffer scratch_;                  // grows to the largest op's needs, then stays
  std::vector<RopeAngles> angles_;  // one per sequence
};

}  // namespace lariat
