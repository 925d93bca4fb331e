#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "kernels/tensor.h"

// The one abstract interface of lariat: the operations a LLaMA-style decoder needs.
//
// Conventions, for every op:
//  - Matrices are row-major views in the backend's memory; a row is a token unless said otherwise.
//  - Activations are f32. Weights are [out_features, in_features] in any dtype, as checkpoints store them;
//    only matmul takes quantised ones.
//  - Outputs may not alias inputs unless the comment says so.
//  - Shapes are the caller's responsibility (models/weights checks them once, at load); ops assert them.
//  - `reference/` computes each op in float64, one scalar loop per formula; `cpu/` and `cuda/` are tested
//    against it (tests/kernels). The three versions of an op live in files of the same name.
namespace lariat {

class Backend;

// Owning block of backend memory; empty by default, movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* owner, void* data, size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Backend* owner_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Positions per block of the KV cache. A block is what the cache grows by.
inline constexpr int64_t kKvPage = 256;

// One layer of one sequence's KV cache. K and V have the same layout, in blocks of kKvPage positions:
//
//   k_blocks[position / kKvPage] -> [n_kv_heads][kKvPage][head_dim]   (k_dtype)
//   v_blocks[position / kKvPage] -> [n_kv_heads][kKvPage][head_dim]   (v_dtype)
//
// so the keys of one head are contiguous inside a block. Keys are stored rotated (invariant I1) and never
// scaled (I2). The pointer arrays are host memory; the blocks are backend memory.
struct KvLayer {
  void* const* k_blocks = nullptr;
  void* const* v_blocks = nullptr;
  DType k_dtype = DType::kF16;
  DType v_dtype = DType::kF16;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
};

// The one index function of the cache: element (head, position, d) inside position's block.
constexpr int64_t kv_index(int64_t head, int64_t position, int64_t d, int64_t head_dim) {
  return (head * kKvPage + position % kKvPage) * head_dim + d;
}

// cos and sin of position * inv_freq for a run of tokens: f32 [n_tokens, rotary_dim / 2] each.
// Dimensions at and above rotary_dim are not rotated (partial_rotary_factor).
//   half-split  (interleaved = false, HF checkpoints): pair i is (x[i], x[i + rotary_dim/2])
//   interleaved (Meta, GPT-J):                          pair i is (x[2i], x[2i + 1])
//   (a, b) -> (a cos - b sin, a sin + b cos)
struct RopeTable {
  Matrix cos, sin;
  int64_t rotary_dim = 0;
  bool interleaved = false;
  float q_scale = 1.0F;  // attention_factor^2, applied to the rotated dimensions of q only (I2)
  // Inside Backend::run_step: which of the step's sequences this is. Outside: -1.
  int64_t step_row = -1;
};

// What happens to q, k and v between their projections and the cache; an absent matrix means "not in this
// model".
struct QkvEpilogue {
  Matrix q_bias, k_bias, v_bias;  // one row of n_heads (n_kv_heads) * head_dim
  Matrix q_norm, k_norm;          // one row of head_dim: RMSNorm over each head (Qwen3)
  float norm_eps = 0.0F;
};

struct AttentionParams {
  int64_t n_heads = 0;         // query heads; a multiple of the cache's n_kv_heads (GQA, arXiv 2305.13245)
  float scale = 0.0F;          // 1 / sqrt(head_dim)
  int64_t sliding_window = 0;  // 0: none; w: token p sees positions (p - w, p]
};

// How a token is drawn from logits; see Backend::sample.
struct Sampling {
  float temperature = 0.0F;  // 0: the likeliest, whatever the rest says
  int32_t top_k = 0;         // keep the k likeliest; 0: all
  float top_p = 1.0F;        // keep the likeliest that together reach p (arXiv 1904.09751); 1: all
  float min_p = 0.0F;        // keep those with p >= min_p * p_max (arXiv 2407.01082); 0: all
};

// The ops of a step, where the caller has them: not copied, so it may not outlive them.
class StepOps {
 public:
  template <class F>
  explicit StepOps(const F& ops) : ops_(&ops), call_([](const void* f) { (*static_cast<const F*>(f))(); }) {}
  void operator()() const { call_(ops_); }

 private:
  const void* ops_;
  void (*call_)(const void*);
};

// One token for each of some sequences: what Backend::run_step runs.
struct DecodeStep {
  std::span<const int64_t> positions;                // of the new token, one per sequence
  std::span<const std::span<const KvLayer>> caches;  // [sequence][layer], with room for it
  std::span<const uint64_t> constants;               // words that differ when anything else does
};

// What the hardware can do at most, measured; 0: not measured.
struct Limits {
  double read_bytes_per_second = 0;  // from main (device) memory
  double flops_per_second = 0;       // multiply-adds with such weights, counted as two operations
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "cpu", "cuda", "reference"
  virtual std::string description() const = 0;  // the hardware, in words, for reports

  // dtype: what products are computed in, or a quantised dtype of weights.
  virtual Limits measure_limits(DType dtype) { return static_cast<void>(dtype), Limits{}; }

  // --- memory ---------------------------------------------------------------------------------------
  // Uninitialised memory, aligned to 64 bytes. Throws Error (how much was asked for) when there is none.
  virtual Buffer allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) noexcept = 0;  // called by ~Buffer
  virtual void copy_in(void* dst, const void* host_src, size_t bytes) = 0;
  virtual void copy_out(void* host_dst, const void* src, size_t bytes) = 0;
  virtual void copy(void* dst, const void* src, size_t bytes) = 0;  // within the backend; no overlap

  // A weight from host memory (which must outlive the backend: usually a mapped file) as this backend's
  // matmul wants it, converted to `dtype` when that differs. The CPU uses equal dtypes in place. Quantised
  // dtypes (kernels/quant.h) only where quantizes().
  virtual Matrix load_weight(const Matrix& host, DType dtype) = 0;
  virtual bool quantizes() const { return false; }

  // Returns when everything that was asked for is done; for timing. A CPU always is.
  virtual void synchronize() {}

  // Runs `ops`, which calls rms_norm, add_rms_norm, add, matmul, qkv_to_cache, attention and swiglu of this
  // backend, the two with a position with RopeTable::step_row set, and the same ones with the same arguments
  // whenever `constants` and `caches` are the same and only the positions differ. A backend may then keep
  // what they did and do it again for other positions without calling `ops`.
  virtual void run_step(const DecodeStep& step, StepOps ops) {
    static_cast<void>(step);
    ops();
  }

  // --- ops ------------------------------------------------------------------------------------------
  // out[t] = table[tokens[t]], converted to f32. tokens: host memory, n ids in [0, table.rows).
  virtual void embed(std::span<const int32_t> tokens, const Matrix& table, const Matrix& out) = 0;

  // out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight (arXiv 1910.07467). weight: one row of x.cols.
  // out may be x.
  virtual void rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) = 0;

  // residual[t] += delta[t]; out[t] = rms_norm(residual[t]). out may be delta.
  virtual void add_rms_norm(const Matrix& residual, const Matrix& delta, const Matrix& weight, float eps,
                            const Matrix& out) = 0;

  // x[t] += delta[t]
  virtual void add(const Matrix& x, const Matrix& delta) = 0;

  // out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]), accumulated in f32. bias: one row of w.rows, or empty.
  // compute = kF32: x as it is, w converted exactly. compute = kBF16: x is first rounded to bf16, for any
  // number of rows, so that a prefill and a decode step see the same numbers. Quantised w: see
  // kernels/quant.h, whatever compute is.
  virtual void matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
                      const Matrix& out) = 0;

  // table.cos/sin[i][j] = cos/sin((first_position + i) * inv_freq[j]): the product in double, reduced in
  // double, then rounded to f32 (I4). inv_freq: host memory, rotary_dim / 2 values.
  virtual void rope_table(int64_t first_position, std::span<const double> inv_freq,
                          const RopeTable& table) = 0;

  // For token i at first_position + i, per head:
  //   q += q_bias; q = rms_norm(q, q_norm)                       in place, not rotated: attention does that
  //   k = rope(rms_norm(k + k_bias, k_norm)); cache.K[position] = k (rounded to k_dtype)
  //   cache.V[position] = v + v_bias                              (rounded to v_dtype)
  // What f16 cannot hold becomes +-65504: one infinity in the cache would turn every later token into NaN.
  // q: f32 [n, n_heads * head_dim]; k, v: f32 [n, n_kv_heads * head_dim] (may be overwritten).
  virtual void qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& post,
                            const RopeTable& rope, const KvLayer& cache, int64_t first_position) = 0;

  // Causal attention of n new tokens over the cache, which already holds them. Token i is at position
  // p = first_position + i; head h reads KV head h / (n_heads / n_kv_heads):
  //   q' = rope(q[i][h]), its rotated dimensions times rope.q_scale
  //   out[i][h] = softmax_j(shape.scale * q' . K[j]) V[j],   j in [max(0, p - window + 1), p]
  // One pass with a running maximum (online softmax, arXiv 1805.02867; FlashAttention, arXiv 2205.14135).
  // q, out: f32 [n, n_heads * head_dim].
  virtual void attention(const Matrix& q, const RopeTable& rope, const KvLayer& cache, int64_t first_position,
                         const AttentionParams& shape, const Matrix& out) = 0;

  // Turns cached keys onto a new clock, in place (I1): for every layer, head and position p < n_positions,
  //   K[p] = R(p * delta_inv_freq) K[p],   delta_inv_freq = new inv_freq - old inv_freq  (double, host
  //   memory)
  // angles in double; keys read, rotated in f32 and rounded back to k_dtype.
  virtual void rerotate_keys(std::span<const KvLayer> layers, int64_t n_positions,
                             std::span<const double> delta_inv_freq, bool interleaved) = 0;

  // gate[t][i] = silu(gate[t][i]) * up[t][i], silu(x) = x / (1 + exp(-x)) (SwiGLU, arXiv 2002.05202).
  virtual void swiglu(const Matrix& gate, const Matrix& up) = 0;

  // index of each row's largest logit (the first of equals; NaN never wins; 0 for a row of nothing but NaN)
  // -> ids, host memory, logits.rows.
  virtual void argmax(const Matrix& logits, std::span<int32_t> ids) = 0;

  // ids[t] = a token drawn from row t with the uniform number u = uniforms[t] in [0, 1). The tokens stand in
  // the order of falling logits (by id among equals), each with the weight
  //   w = exp((logit - largest logit) / temperature)                   in double
  // Kept are the first top_k; of them the shortest beginning that has at least top_p of their weight; of
  // those the ones with w >= min_p. Drawn is the first at which the running sum of weights, its own included,
  // exceeds u times the sum of all kept: the same token on every backend, unless u is within rounding of the
  // border between two. temperature = 0: the first token of all. NaN and -inf are never drawn; -1 for a row
  // with no finite logit, or with +inf. uniforms (not read when temperature = 0), ids: host memory,
  // logits.rows.
  virtual void sample(const Matrix& logits, const Sampling& how, std::span<const double> uniforms,
                      std::span<int32_t> ids) = 0;

  // nll[t] = log(sum_v exp(logits[t][v])) - logits[t][targets[t]], accumulated in double. host memory.
  // A logit of -inf counts as probability 0 (nll = inf for such a target); NaN for a row with a NaN, with
  // +inf or with nothing but -inf.
  virtual void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) = 0;
};

inline Buffer::~Buffer() {
  if (data_ != nullptr) owner_->release(data_, bytes_);
}

}  // namespace lariat
