#pragma once
#include <array>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace lariat {

namespace cuda {
struct FirstPosition;
}

// NVIDIA GPUs from sm_80 on. cuBLAS for prefill matrix products, own kernels for everything else, one op per
// file in this folder. Work is queued on one stream; only what returns host values (copy_out, argmax,
// token_nll) waits for it. Not for several threads at once.
class CudaBackend final : public Backend {
 public:
  // Up to this many tokens, a product reads its weights through gemv; beyond, cuBLAS takes over.
  static constexpr int kGemvTokens = 8;

  explicit CudaBackend(int device = 0);
  ~CudaBackend() override;

  std::string name() const override { return "cuda"; }
  std::string description() const override;
  Limits measure_limits(DType compute) override;  // well under a second

  Buffer allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override;
  void copy_out(void* host_dst, const void* src, size_t bytes) override;
  void copy(void* dst, const void* src, size_t bytes) override;
  Matrix load_weight(const Matrix& host, DType dtype) override;
  void synchronize() override;
  void run_step(const DecodeStep& step, StepOps ops) override;

  // How the decode steps so far were run: by their ops, recorded (and then run), or from the record alone.
  struct StepCounts {
    int64_t direct = 0, recorded = 0, replayed = 0;
  };
  const StepCounts& step_counts() const { return steps_.counts; }

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
  // Working memory of the ops: one block per purpose, which grows to the largest need and stays.
  enum class Scratch : uint8_t { kGemmX, kGemmW, kAttention, kResult, kCount };
  void* scratch(Scratch purpose, size_t bytes);

  // The block pointers of a cache, on the device. The host's array is the key; its contents are compared at
  // every use (one pointer per 256 positions), so a block that was added or replaced is sent again.
  void* const* device_blocks(void* const* host_blocks, int64_t n_positions);

  // The present decode step, if there is one, and the record of an earlier one (step.cu).
  struct Steps {
    bool inside = false;
    Buffer positions;                 // int64 [kGemvTokens], what the kernels of a step read
    std::vector<uint64_t> last_key;   // of the step before
    std::vector<uint64_t> graph_key;  // of the step in `graph`
    cuda::Graph graph = nullptr;
    StepCounts counts;
  };
  std::vector<uint64_t> step_key(const DecodeStep& step);
  void record_step(StepOps ops);
  void forget_graph() noexcept;
  // Where the kernels of an op find their first position, and the length to plan their grids for.
  cuda::FirstPosition step_position(const RopeTable& rope, int64_t first_position) const;
  int64_t planned_length(const RopeTable& rope, int64_t length) const;

  // Sends host memory through two pinned buffers in turn, so that filling one overlaps sending the other.
  // The host memory is free again on return, the copy done in the stream's order.
  void upload(void* dst, const void* host_src, size_t bytes);
  void upload_matrix(const Matrix& dst, const Matrix& host);

  // to = from, each value first rounded to `rounding` (kF32: not at all) and then to to.dtype.
  void convert(const Matrix& from, DType rounding, const Matrix& to);
  void gemv(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute, const Matrix& out);
  void gemm(const Matrix& x, const Matrix& w, DType compute, const Matrix& out);
  // An f32 product with f16 weights at the speed of the tensor cores: x goes as two f16 terms. Row t of out
  // is still to be multiplied by element t of what is returned.
  const float* gemm_two_terms(const Matrix& x, const Matrix& w, const Matrix& out);

  struct BlockTable {
    std::vector<void*> host;
    Buffer device;
    uint64_t last_use = 0;
  };
  struct Pinned {
    void* data = nullptr;
    cuda::Event sent = nullptr;
  };

  cuda::DeviceInfo device_;
  cuda::Stream stream_ = nullptr;
  cuda::Blas blas_ = nullptr;
  std::array<Pinned, 2> pinned_;
  size_t next_pinned_ = 0;
  std::array<Buffer, static_cast<size_t>(Scratch::kCount)> scratch_;
  uint64_t scratch_moves_ = 0;  // a record holds the addresses of before
  Steps steps_;
  std::unordered_map<const void*, BlockTable> block_tables_;
  uint64_t table_clock_ = 0;
  std::deque<Buffer> weights_;
};

}  // namespace lariat
