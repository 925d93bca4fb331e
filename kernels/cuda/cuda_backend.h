#pragma once
#include <array>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/launch_queue.h"
#include "kernels/cuda/runtime.h"
#include "kernels/limits.h"

namespace lariat {

namespace cuda {
struct DeviceStep;
struct Gemv;
// Whether attention over such a cache runs on tensor cores: 16-bit keys and values of a head size that fits.
bool tensor_cores_support(DType k_dtype, DType v_dtype, int64_t head_dim);
}  // namespace cuda

// NVIDIA GPUs from sm_80 on. cuBLAS for prefill matrix products, own kernels for everything else, one op per
// file in this folder. Work is queued on one stream; only what returns host values (copy_out, read_drawn,
// token_nll) waits for it. The ops of a layer are collected and recorded (launch_queue.h). For
// any thread, but not for several at once.
class CudaBackend final : public Backend {
 public:
  // Up to this many tokens, a product reads its weights through gemv; beyond, cuBLAS takes over.
  static constexpr int kGemvTokens = 8;
  static constexpr int kMmaTokens = 16;  // the same of bf16 weights and bf16 products, and of quantised ones

  explicit CudaBackend(int device = 0, cuda::LaunchQueue::Warn warn = {});
  ~CudaBackend() override;

  std::string name() const override { return "cuda"; }
  std::string description() const override;
  Traits traits() const override;

  Buffer allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override;
  void copy_out(void* host_dst, const void* src, size_t bytes) override;
  void copy(void* dst, const void* src, size_t bytes) override;
  LoadedWeight load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> forms,
                           DType compute) override;
  void synchronize() override;

  using StepCounts = cuda::LaunchQueue::Counts;
  const StepCounts& step_counts() const { return queue_.counts(); }  // of the steps so far

  void embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
             const Matrix& out) override;
  void norm(const Matrix& x, const Norm& norm, const Matrix& out) override;
  void add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                const Matrix& out) override;
  void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) override;
  void rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) override;
  void qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                    const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) override;
  void keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) override;
  Saturation saturated() override;
  void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges, const KvLayer& layer,
                 const AttentionParams& params, const Matrix& out) override;
  void rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                     bool interleaved) override;
  void glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) override;
  void route(const Matrix& logits, const Router& router, const Routing& routing) override;
  void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                      const Matrix& out) override;
  void combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) override;
  void draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) override;
  void read_drawn(std::span<int32_t> ids) override;
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override;

 private:
  friend Limits measure_cuda_limits(Backend& cuda, DType dtype);

  // Working memory of the ops: one block per purpose, which grows to the largest need and stays.
  enum class Scratch : uint8_t { kGemmX, kGemmW, kProduct, kAttention, kResult, kCount };
  void* scratch(Scratch purpose, size_t bytes);

  // The stream and cuBLAS behind everything that was collected so far.
  cuda::Stream stream() { return queue_.flushed(); }
  cuda::Blas blas() { return queue_.flush(), blas_; }

  // Host words in device memory at fixed addresses. Only those that change are sent, as arguments of a
  // launch: there is no copy to wait for.
  struct Mirror {
    std::vector<uint64_t> host;
    Buffer device;
  };
  void send(Mirror& mirror, size_t at, const void* words, size_t count);
  void reserve(Mirror& mirror, size_t words);

  // Sequences of an op on the device: positions and lengths, and page tables.
  struct SequenceTables {
    Mirror sequences;  // [count] cuda::Sequence
    Mirror pages;      // [count][pitch]
    int64_t count = 0, pitch = 0;
    int64_t rows = 0;            // new tokens of all sequences
    int64_t longest = 0;         // new tokens of the sequence that has most of them
    int64_t planned_length = 0;  // what launches plan for: no sequence is longer with its new tokens
  };
  void send_sequences(SequenceTables& tables, std::span<const StepSequence> sequences);
  // The tables of the step that an op is asked for. Nothing is sent, and what is collected goes on being
  // collected, where the op before had the same step.
  const SequenceTables& enter(const Step& step);
  static cuda::DeviceStep on_device(const SequenceTables& tables);
  // Where on the device the frequencies of a RoPE table are. A model has two tables at most, whose words
  // hardly change from step to step: each stays in a mirror of its own.
  const double* send_frequencies(std::span<const double> words);

  // Sends host memory through two pinned buffers in turn, so that filling one overlaps sending the other.
  // The host memory is free again on return, the copy done in the stream's order.
  void upload(void* dst, const void* host_src, size_t bytes);
  void upload_matrix(const Matrix& dst, const Matrix& host);

  // The products of a linear, and its epilogues.
  void multiply(const Matrix& x, std::span<const Product> products, DType compute);
  void add_product(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out);
  void gated(const Matrix& x, const Weight& weight, Activation activation, const Matrix& out);
  void soft_cap(const Matrix& x, float scale, float cap);  // x = cap * tanh(scale x / cap)
  Matrix product_memory(DType dtype, int64_t rows, int64_t cols);

  // to = from, each value first rounded to `rounding` (kF32: not at all) and then to to.dtype.
  void convert(const Matrix& from, DType rounding, const Matrix& to);
  // out[t][o] = out[t][o] * row_scale[t] + bias[o]; either may be absent.
  void finish(const Matrix& out, const float* row_scale, const Matrix& bias);
  // The kernels for a few tokens: on tensor cores, by vectors, or by single weights where rows of w or x do
  // not begin at multiples of 16 bytes. kNone: too many tokens, or weights of several dtypes or quantised.
  enum class GemvKind : uint8_t { kNone, kMma, kVector, kElement };
  static GemvKind gemv_kind(const Matrix& x, std::span<const Product> products, DType compute);
  // Up to three products in one launch, of few tokens; or, with `activation`, the gated unit of two.
  void gemv(GemvKind kind, const Matrix& x, std::span<const Product> products, DType compute,
            const Activation* activation);
  // x as the kernels of a few tokens read it: bf16 for products in bf16 with bf16 weights, f32 for others.
  Matrix gemv_input(const Matrix& x, DType weights, DType compute);
  // Gives the kernels of few tokens x as those of w's form read it, in working memory, and the form.
  void read_by_codes(const Matrix& x, const Matrix& w, cuda::Gemv& g);
  // Multiplies by quantised weights; false, and nothing done, where that kernel is not for these.
  bool quant_gemv(const Matrix& x, std::span<const Product> products);
  // The products of many tokens. x is rounded once for those of one x.
  struct RoundedX {
    Matrix matrix;
    DType compute = DType::kF32;  // what its values are rounded to
  };
  const Matrix& round_x(const Matrix& x, DType compute, DType dtype, RoundedX& rounded);
  // Weights that lie one behind the other, outs side by side, as one product.
  void gemm(const Matrix& x, std::span<const Product> neighbours, DType compute, RoundedX& rounded,
            const cuda::Scales& scales);
  void float_gemm(const Matrix& x, const Matrix& w, const Matrix& out, const cuda::Scales& scales);
  void quant_gemm(const Matrix& x, std::span<const Product> neighbours, const cuda::Scales& scales);
  void load_floats(const HostWeight& host, const Matrix& to);
  void load_quantized(const HostWeight& host, const Matrix& to);
  // An f32 product with f16 weights at the speed of the tensor cores: x goes as two f16 terms. Row t of out
  // is still to be multiplied by element t of what is returned.
  const float* gemm_two_terms(const Matrix& x, const Matrix& w, const Matrix& out);

  // Host memory that copies to or from the device do not wait for.
  struct Pinned {
    void* data = nullptr;
    size_t bytes = 0;
    cuda::Event copied = nullptr;  // what was asked for last
  };
  // Makes it at least so large; what was in it is gone when it grows. Throws Error when there is none.
  static void reserve(Pinned& pinned, size_t bytes);
  static void release(Pinned& pinned) noexcept;

  // In this order: what is freed flushes the queue, so that no launch outlives its memory.
  cuda::DeviceInfo device_;
  cuda::LaunchQueue queue_;
  cuda::Blas blas_ = nullptr;
  std::array<Pinned, 2> pinned_;
  size_t next_pinned_ = 0;
  Pinned drawn_ids_;  // what is in drawn_, on the host
  std::array<Buffer, static_cast<size_t>(Scratch::kCount)> scratch_;
  SequenceTables step_;                // of the last op that was asked for with a step
  std::array<Mirror, 2> frequencies_;  // of rope_table: doubles
  size_t last_frequencies_ = 0;        // which of them was needed last
  SequenceTables rotations_;           // of rerotate_keys
  Mirror rotation_words_;              // doubles
  Buffer finished_blocks_;             // Attention::finished, for as many tiles as it splits
  Buffer drawn_;                       // what draw drew last
  Buffer saturated_;                   // Saturation, as the kernels count it
};

}  // namespace lariat
