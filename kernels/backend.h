#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/host_memory.h"
#include "kernels/host_weight.h"
#include "kernels/step.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

// Interface of a compute backend: the operations of a LLaMA-style decoder. Conventions of every op:
//  - Matrices are row-major views of backend memory. A row is a token unless stated otherwise.
//  - Activations are f32. norm, add_norm, attention, glu and a gated linear also write bf16 (Weight::input).
//    Weights are [out_features, in_features]; only linear and grouped_linear accept quantized weights.
//  - Outputs must not alias inputs unless the op's comment allows aliasing.
//  - Ops do not check shapes: models/weights checks all shapes at load.
//  - `reference/` computes each op in float64; tests/kernels compares `cpu/` and `cuda/` to `reference/`.
namespace lariat {

class Backend;

class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* owner, void* data, size_t bytes) : data_(data, {owner, bytes}) {}

  void* data() const { return data_.get(); }
  size_t bytes() const { return data_ == nullptr ? 0 : data_.get_deleter().bytes; }

 private:
  struct Release {
    Backend* owner;
    size_t bytes;
    void operator()(void* data) const noexcept;
  };
  std::unique_ptr<void, Release> data_;
};

// `memory` is empty if the weight uses host memory in place.
struct LoadedWeight {
  Weight weight;
  Buffer memory;
};

// Norm over a row x of n values; empty weight: no norm, empty bias: 0.
//   RMSNorm (arXiv 1910.07467):             x / sqrt(mean(x^2) + eps) * weight + bias
//   LayerNorm (arXiv 1607.06450), centred:  (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias
struct Norm {
  Matrix weight, bias;  // one row of n each
  float eps = 0.0F;
  bool centred = false;

  explicit operator bool() const { return static_cast<bool>(weight); }
};

// Ops between the q, k, v projections and the cache. Empty matrix: no op.
struct QkvEpilogue {
  Matrix q_bias, k_bias, v_bias;  // one row of n_heads (n_kv_heads) * head_dim
  Matrix q_norm, k_norm;          // one row of head_dim: RMSNorm over each head (Qwen3)
  float norm_eps = 0.0F;
  float clip = 0.0F;  // c > 0: clamps q, k, v to [-c, c] after the bias (MPT, OLMo); 0: none
  const RopeTable* second_rope = nullptr;  // RoPE of the second keys (KvLayer::second_k_offset)
};

struct AttentionParams {
  int64_t n_heads = 0;   // query heads; a multiple of the cache's n_kv_heads (GQA, arXiv 2305.13245)
  float scale = 0.0F;    // 1 / sqrt(head_dim)
  float softcap = 0.0F;  // c > 0: score s becomes c tanh(s / c) (Gemma 2, arXiv 2408.00118)
  // ALiBi (arXiv 2108.12409): adds slopes[h] * (j - p) to the score of query position p and key position j.
  // f32, one row of n_heads; empty: none.
  Matrix slopes{};
  // Attention sinks (gpt-oss): an extra softmax score per head. Layout of slopes.
  Matrix sinks{};
  Matrix q_weight{};  // f32, one row of head_dim: factors of every rotated query; empty: 1
  // Receives each head's largest score, then each head's sum of exp(score - largest): f32 [tokens, 2 *
  // n_heads]. Without a visible key the sum and out are 0. Host memory only. Empty: not wanted.
  Matrix state{};
};

// Operation fused into the end of a linear.
struct Epilogue {
  enum class Kind : uint8_t { kNone, kResidual, kGated, kCap };
  Kind kind = Kind::kNone;
  Matrix residual{};        // kResidual
  Norm norm{};              // kResidual: norm of the following block, or empty
  float scale = 1.0F;       // kResidual, kCap
  float cap = 0.0F;         // kCap; 0: no cap
  Activation activation{};  // kGated

  // residual[t] += scale * product[t]; out[t] = norm(residual[t]), unspecified without norm. out must not
  // overlap x, residual.
  static Epilogue add_to(const Matrix& residual, float scale, const Norm& norm) {
    return {.kind = Kind::kResidual, .residual = residual, .norm = norm, .scale = scale};
  }
  // Two blocks, gate | up: out = activation(gate) * up (gated linear unit, arXiv 2002.05202). One block: out
  // = activation(product). For a bf16 `out`, a backend may round the products g and u to bf16, as
  // transformers does: an extra error of at most 2^-8 |u| (s |g| + |activation(g)|); s is the steepest slope:
  // 1.13, kRelu2: 2 |g|.
  static Epilogue gated(Activation activation) { return {.kind = Kind::kGated, .activation = activation}; }
  // Logits: out = scale * product, then cap * tanh(out / cap) if cap > 0.
  static Epilogue capped(float scale, float cap) { return {.kind = Kind::kCap, .scale = scale, .cap = cap}; }
};

// Expert selection from router logits l. Scores are s = softmax(l) or sigmoid(l), ranked by s + choice_bias.
// Only the best kept_groups of n_groups equal groups take part, by their largest value or, with a
// choice_bias, the sum of their two largest (DeepSeek-V2 and V3, arXiv 2405.04434, 2412.19437). The top
// n_chosen experts are in descending order, ties by index. Weight: s, divided by the chosen experts' sum if
// `normalise`, times `scale`.
struct Router {
  int64_t n_chosen = 1;
  bool sigmoid = false;
  Matrix choice_bias{};  // f32, one row of n_experts; empty: zeros
  int64_t n_groups = 1, kept_groups = 1;
  bool normalise = false;
  float scale = 1.0F;
};

struct Routing {
  int32_t* experts = nullptr;  // [tokens][n_chosen], each in [0, n_experts)
  Matrix weights;              // f32 [tokens, n_chosen]
  Matrix shared_logits{};      // f32 [tokens, 1], of the shared expert; empty: its weight is 1
};

// Token id for embed: the token that the last draw chose for row `row`.
constexpr int32_t drawn_token(size_t row) { return -1 - static_cast<int32_t>(row); }

// Token id of a read_drawn result, negative if the largest logit is not finite.
constexpr int32_t token_of(int32_t drawn) { return drawn < 0 ? -1 - drawn : drawn; }

struct Sampling {
  float temperature = 0.0F;  // 0: greedy (argmax); all other fields are ignored
  int32_t top_k = 0;         // keep the k most probable; 0: all
  float top_p = 1.0F;        // keep the smallest top set with probability >= p (arXiv 1904.09751); 1: all
  float min_p = 0.0F;        // keep tokens with p >= min_p * p_max (arXiv 2407.01082); 0: all
};

// Counts of cached numbers stored as +-65504, the f16 maximum: most are clamped.
struct Saturation {
  int64_t keys = 0, values = 0;
};

struct Traits {
  bool host_memory = true;     // memory-mapped weights are used in place
  bool asynchronous = false;   // ops return before they complete
  bool copies_bf16 = false;    // load_weight copies bf16 weights into another layout
  int64_t steady_tokens = 16;  // least token capacity of a step, for stable addresses of recorded steps
  // Whether attention over this cache uses the fastest units, several times faster than others.
  bool (*fast_attention)(DType k_dtype, DType v_dtype, int64_t head_dim) = [](DType, DType, int64_t) {
    return true;
  };
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "cpu", "cuda", "reference"
  virtual std::string description() const = 0;  // hardware, for reports
  virtual Traits traits() const { return {}; }

  // --- memory ---------------------------------------------------------------------------------------
  // Uninitialised memory, aligned to 64 bytes. Throws Error if memory runs out.
  virtual Buffer allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) noexcept = 0;     // called by Buffer
  virtual double free_bytes() const { return free_host_bytes(); }  // of memory for allocate
  virtual void copy_in(void* dst, const void* host_src, size_t bytes) = 0;
  virtual void copy_out(void* host_dst, const void* src, size_t bytes) = 0;
  virtual void copy(void* dst, const void* src, size_t bytes) = 0;  // within the backend; no overlap

  // Loads the blocks of a weight, without biases, in this backend's layout. Block i is converted to
  // formats[i]; inputs are rounded to `compute`. The CPU uses unconverted float blocks in place. `host`
  // memory and the backend must outlive the weight.
  virtual LoadedWeight load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> formats,
                                   DType compute) = 0;

  // Waits for all queued work.
  virtual void synchronize() {}

  // Bits of activations in later products with quantized weights, 8 or 16 (kernels/quant.h). 16: no operand
  // of these products is rounded to bf16; on the CPU, nor is one of attention or of a float weight.
  void use_activations(int bits) { activation_bits_ = bits; }

  // --- ops ------------------------------------------------------------------------------------------
  // out[t] = scale * table[tokens[t]] in f32. tokens: host memory, ids in [0, table.rows), or drawn_token(j)
  // for token_of the last draw of row j. table: a matrix from load_weight or, with Traits::host_memory, a
  // quantized host weight.
  virtual void embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
                     const Matrix& out) = 0;

  // out[t] = norm(x[t]). out may be x.
  virtual void norm(const Matrix& x, const Norm& norm, const Matrix& out) = 0;

  // residual[t] += scale * delta[t]; out[t] = norm(residual[t]) if norm is set. out may be delta.
  virtual void add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                        const Matrix& out) = 0;

  // product[t][o] = sum_i x[t][i] w[o][i] + bias[o] in f32, for all blocks side by side; out = epilogue of
  // product. x: f32 or weight.input. Bitwise guarantees on a CPU: docs/accuracy.md. Other sums differ by f32
  // accumulation error, with standard deviation 2^-24 sum |x_i w_i| (tests/kernels/linear_cases.h).
  virtual void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) = 0;

  // For token i of sequence s, at index p: table.cos/sin[row][j] = cos/sin(ropes[s].angle(i, p, j)),
  // range-reduced in double, rounded to f32; table.q_scale[row] = ropes[s].q_scale, optional without
  // rotation; table.whole_q_scale[row] likewise. `ropes`: one entry per sequence.
  virtual void rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) = 0;

  // For every token of the step, at position p of its sequence, per head:
  //   q = rms_norm(clip(q + q_bias), q_norm)                     in place; attention rotates q
  //   k = rope(rms_norm(clip(k + k_bias), k_norm)); K[p] = k     (rounded to k_dtype)
  //   second keys: the same with epilogue.second_rope, if set
  //   V[p] = clip(v + v_bias)                                    (rounded to v_dtype; kQ8: kv_values.h)
  // K and V: `layer`'s part of the pages. Empty v: no values are stored (MLA reads the keys as values). Empty
  // q: queries are skipped. Numbers beyond f16 become +-65504 and are counted (saturated()), since a cached
  // infinity would make every later token NaN. Null pages are not written. q: f32 [tokens, n_heads *
  // head_dim]; k, v: f32 [tokens, n_kv_heads * head_dim], may be overwritten.
  virtual void qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                            const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) = 0;

  // Reads cached keys of a `layer` with one KV head: out[t n + c][d] = K[p][first + d] for token t at
  // position p, c < n copies. out: f32 [tokens * n, up to head_dim].
  virtual void keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) = 0;

  // Count of numbers stored as +-65504 in f16 by qkv_to_cache and rerotate_keys so far. Waits for these ops.
  virtual Saturation saturated() = 0;

  // Causal attention over the sequences' caches, which hold the step's tokens. For the token at position p of
  // its sequence, head h reads KV head h / (n_heads / n_kv_heads). For the keys j of up to kMaxRanges
  // disjoint ranges:
  //   q' = rope(q[row][h]) * rope.whole_q_scale[row] * params.q_weight, rotated dimensions also *
  //        rope.q_scale[row], per range
  //   s_j = cap(params.scale * q' . K[j]) + params.slopes[h] * (j - p)
  //   out[row][h] = softmax_j(s_j) V[j]   over all ranges; the score params.sinks[h] has no value
  // Keys on null pages (of other processes) are invisible. One pass with a running maximum (online softmax,
  // arXiv 1805.02867; FlashAttention, arXiv 2205.14135). Bitwise guarantees on a CPU, and bf16 operands:
  // docs/accuracy.md. q: f32 [tokens, n_heads * head_dim]; out: [tokens, n_heads * value_dim]. value_dim <=
  // head_dim selects the first numbers of each V[j] (latent attention).
  static constexpr int kMaxRanges = 3;
  virtual void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges,
                         const KvLayer& layer, const AttentionParams& params, const Matrix& out) = 0;

  // Re-rotates cached keys in place: K[p] = R(angle(p)) K[p] for every sequence, layer, head and index p <
  // n_positions. Angles are double; keys are rotated in f32 and rounded to k_dtype as in qkv_to_cache.
  virtual void rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                             bool interleaved) = 0;

  // out[t][i] = activation(gate[t][i]) * up[t][i]. Empty up: factor 1. out may be gate.
  virtual void glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) = 0;

  // xIELU (arXiv 2411.13010), in place. For x > 0: positive x^2 + beta x; else, as in transformers:
  // negative (exp(min(x, eps)) - 1 - x) + beta x.
  virtual void xielu(const Matrix& x, const Xielu& parameters) = 0;

  // Selects experts by router logits, f32 [tokens, n_experts <= 512]; also for NaN rows.
  virtual void route(const Matrix& logits, const Router& router, const Routing& routing) = 0;

  // out[t n + j] = w_e row(t, j) (+ row e of weight.biases) in f32, for expert e = routing.experts[t n + j]
  // and n = n_chosen. row(t, j) = x[t n + j] or, if x has a row per token, x[t]. Blocks share one shape and
  // dtype, without their own biases. Bitwise guarantees as in linear, but quantized blocks have one kernel,
  // since prefill chunks split their rows.
  virtual void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                              const Matrix& out) = 0;

  // out[t] = (add ? w out[t] : 0) + sum_j routing.weights[t][j] x[t n + j], in the order of j; w =
  // sigmoid(routing.shared_logits[t]).
  virtual void combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) = 0;

  // Draws one token per logits row t with how[t] (temperature T) and a uniform u = uniforms[t] in [0, 1).
  // Tokens are sorted by descending logit, ties by id, and have the weight
  //   w = exp((logit - largest logit) / T)                             in double
  // Filters, in order: the first top_k tokens, the shortest prefix with top_p of their weight, w >= min_p.
  // The drawn token is the first whose cumulative weight exceeds u times the kept sum: the same on every
  // backend, unless u is within rounding of a boundary. T = 0, or empty `how` or `uniforms`: argmax. NaN and
  // -inf are never drawn. A row with +inf or without a finite logit yields -1 - i: i is the first index of
  // the largest value, 0 if all are NaN. Until the next draw, embed reads the tokens in backend memory, so
  // the next step is queued before the host sees them.
  virtual void draw(const Matrix& logits, std::span<const Sampling> how,
                    std::span<const double> uniforms) = 0;

  // Copies the last draw to ids (host memory); waits for the draw only.
  virtual void read_drawn(std::span<int32_t> ids) = 0;

  // nll[t] = log(sum_v exp(logits[t][v])) - logits[t][targets[t]] in double. A logit of -inf has probability
  // 0 (as target: nll = inf). A NaN, +inf or only -inf yields NaN.
  virtual void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) = 0;

 protected:
  int activation_bits_ = 8;
};

// Assigns memory to a weight for load_weight. in_place: float blocks that need no conversion stay in host
// memory. tiled: bf16 matrices with bf16 compute get AMX tile order. The caller writes the data.
LoadedWeight lay_out_weight(Backend& backend, std::span<const HostWeight> host,
                            std::span<const WeightFormat> formats, DType compute, bool in_place,
                            bool tiled = false);

inline void Buffer::Release::operator()(void* data) const noexcept { owner->release(data, bytes); }

}  // namespace lariat
