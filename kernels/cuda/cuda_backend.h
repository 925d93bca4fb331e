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
// Whether attention over this cache runs on tensor cores.
bool tensor_cores_support(DType k_dtype, DType v_dtype, int64_t head_dim);
}  // namespace cuda

// NVIDIA GPUs from sm_80 on: cuBLAS for prefill matrix products, own kernels for all else. Work is queued on
// one stream; only ops with host results (copy_out, read_drawn, token_nll) wait. Usable by any thread, one at
// a time.
class CudaBackend final : public Backend {
 public:
  // For up to this number of tokens, products use gemv; for more, cuBLAS.
  static constexpr int kGemvTokens = 8;
  static constexpr int kMmaTokens = 16;  // for bf16 weights and products, and quantized weights

  explicit CudaBackend(int device = 0, cuda::LaunchQueue::Warn warn = {});
  ~CudaBackend() override;

  std::string name() const override { return "cuda"; }
  std::string description() const override;
  Traits traits() const override;

  Buffer allocate(size_t bytes) override;
  double free_bytes() const override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_in(void* dst, const void* host_src, size_t bytes) override;
  void copy_out(void* host_dst, const void* src, size_t bytes) override;
  void copy(void* dst, const void* src, size_t bytes) override;
  LoadedWeight load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> formats,
                           DType compute) override;
  void synchronize() override;

  using StepCounts = cuda::LaunchQueue::Counts;
  const StepCounts& step_counts() const { return queue_.counts(); }  // of all steps so far

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
  void xielu(const Matrix& x, const Xielu& parameters) override;
  void route(const Matrix& logits, const Router& router, const Routing& routing) override;
  void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                      const Matrix& out) override;
  void combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) override;
  void draw(const Matrix& logits, std::span<const Sampling> how, std::span<const double> uniforms) override;
  void read_drawn(std::span<int32_t> ids) override;
  void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) override;

 private:
  friend Limits measure_cuda_limits(Backend& cuda, DType dtype);

  // Working memory: a block per purpose, which grows to the largest need.
  enum class Scratch : uint8_t { kGemmX, kGemmW, kProduct, kPart, kAttention, kResult, kCount };
  void* scratch(Scratch purpose, size_t bytes);

  // Stream and cuBLAS handle, after all collected launches.
  cuda::Stream stream() { return queue_.flushed(); }
  cuda::Blas blas() { return queue_.flush(), blas_; }

  // Host words mirrored in device memory at fixed addresses. Only changed words are sent, as arguments of a
  // launch: no copy blocks.
  struct Mirror {
    std::vector<uint64_t> host;
    Buffer device;
  };
  void send(Mirror& mirror, size_t at, const void* words, size_t count);
  void reserve(Mirror& mirror, size_t words);

  struct SequenceTables {
    Mirror sequences;  // [count] cuda::Sequence
    Mirror pages;      // [count][pitch]
    int64_t count = 0, pitch = 0;
    int64_t rows = 0;            // new tokens of all sequences
    int64_t longest = 0;         // most new tokens of a sequence
    int64_t planned_length = 0;  // upper bound, for planning launches
  };
  void send_sequences(SequenceTables& tables, std::span<const StepSequence> sequences);
  // Device tables of an op's step. Sends only words that differ from the previous op's step: none if it had
  // the same step.
  const SequenceTables& enter(const Step& step);
  static cuda::DeviceStep on_device(const SequenceTables& tables);
  // Device address of a RoPE table's frequencies; sends nothing if a mirror holds them. Replaces the mirror
  // that was unused for longest.
  const double* send_frequencies(std::span<const double> words);

  // Sends host memory through two pinned buffers: filling one overlaps sending the other. On return the host
  // memory may change.
  void upload(void* dst, const void* host_src, size_t bytes);
  void upload_matrix(const Matrix& dst, const Matrix& host);

  void multiply(const Matrix& x, std::span<const Product> products, DType compute);
  void add_product(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out);
  void gated(const Matrix& x, const Weight& weight, Activation activation, const Matrix& out);
  void soft_cap(const Matrix& x, float scale, float cap);  // x = cap * tanh(scale x / cap)
  Matrix product_memory(DType dtype, int64_t rows, int64_t cols);

  // to = from, each value rounded to `rounding` (kF32: no rounding), then to to.dtype.
  void convert(const Matrix& from, DType rounding, const Matrix& to);
  // out[t][o] = out[t][o] * row_scale[t] + bias[o]; either may be absent.
  void finish(const Matrix& out, const float* row_scale, const Matrix& bias);
  // Kernels for few tokens: tensor cores, vectors, or single weights if rows are not aligned to 16 bytes.
  enum class GemvKind : uint8_t { kNone, kMma, kVector, kElement };
  static GemvKind gemv_kind(const Matrix& x, std::span<const Product> products, DType compute);
  // Up to three products in one launch; with `activation`, the gated unit of two.
  void gemv(GemvKind kind, const Matrix& x, std::span<const Product> products, DType compute,
            const Activation* activation);
  // x as bf16 for bf16 products with bf16 weights, else f32.
  Matrix gemv_input(const Matrix& x, DType weights, DType compute);
  // Sets the format of w in g, and a part of x converted for this format.
  void read_by_codes(const Matrix& x, const Matrix& w, int part, cuda::Gemv& g);
  // Calls multiply(0, products). For activations of 16 bits, adds multiply(1, products without biases).
  template <class Multiply>
  void for_parts(const Matrix& w, std::span<const Product> products, const Multiply& multiply) {
    multiply(0, products);
    if (!is_integer(w.grouping.code) || activation_bits_ == 8) return;
    const int64_t rows = products[0].out.rows, cols = outputs_of(products);
    const Products parts(products, {scratch(Scratch::kPart, static_cast<size_t>(rows * cols) * sizeof(float)),
                                    DType::kF32, rows, cols});
    const std::span<const Product> low = parts;
    multiply(1, low);
    for (size_t i = 0; i < low.size(); ++i) add_norm(products[i].out, low[i].out, 1.0F, {}, low[i].out);
  }
  // Returns false, without any work, if this kernel does not apply.
  bool quant_gemv(const Matrix& x, std::span<const Product> products);
  // Products of one x round it once.
  struct RoundedX {
    Matrix matrix;
    DType compute = DType::kF32;  // rounding of the values
  };
  const Matrix& round_x(const Matrix& x, DType compute, DType dtype, RoundedX& rounded);
  // Multiplies contiguous weights as one product.
  void gemm(const Matrix& x, std::span<const Product> neighbours, DType compute, RoundedX& rounded,
            const cuda::Scales& scales);
  void float_gemm(const Matrix& x, const Matrix& w, const Matrix& out, const cuda::Scales& scales);
  void quant_gemm(const Matrix& x, std::span<const Product> neighbours, const cuda::Scales& scales);
  void load_floats(const HostWeight& host, const Matrix& to);
  void load_quantized(const HostWeight& host, const Matrix& to);
  // f32 product with f16 weights on tensor cores: x is split into two f16 terms. The caller must multiply row
  // t of out by element t of the result.
  const float* gemm_two_terms(const Matrix& x, const Matrix& w, const Matrix& out);

  struct Pinned {
    void* data = nullptr;
    size_t bytes = 0;
    cuda::Event copied = nullptr;  // last requested copy
  };
  // Growing discards the contents. Throws Error if memory runs out.
  static void reserve(Pinned& pinned, size_t bytes);
  static void release(Pinned& pinned) noexcept;

  // The order matters: freeing memory flushes the queue, so that no launch outlives its memory.
  cuda::DeviceInfo device_;
  cuda::LaunchQueue queue_;
  cuda::Blas blas_ = nullptr;
  std::array<Pinned, 2> pinned_;
  size_t next_pinned_ = 0;
  Pinned drawn_ids_;
  std::array<Buffer, static_cast<size_t>(Scratch::kCount)> scratch_;
  SequenceTables step_;  // of the last op with a step
  // Doubles of rope_table. A model has up to 2 tables, a position method 2 more.
  std::array<Mirror, 8> frequencies_;
  SequenceTables rotations_;  // of rerotate_keys
  Mirror rotation_words_;     // doubles
  Buffer finished_blocks_;    // Attention::finished
  Buffer drawn_;              // result of the last draw
  Buffer saturated_;          // Saturation, counted by the kernels
};

}  // namespace lariat
