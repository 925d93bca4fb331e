#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/host_weight.h"
#include "kernels/step.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

// The one abstract interface of lariat: the operations a LLaMA-style decoder needs.
//
// Conventions, for every op:
//  - Matrices are row-major views in the backend's memory; a row is a token unless said otherwise.
//  - Activations are f32. The inputs of a linear may be what its Weight::input says instead: norm, add_norm,
//    attention, glu and a gated linear round to an `out` of bf16. Weights are [out_features, in_features] in
//    any dtype, as checkpoints store them; only linear and grouped_linear take quantised ones.
//  - Outputs may not alias inputs unless the comment says so.
//  - Shapes are the caller's responsibility: models/weights checks them once, at load.
//  - `reference/` computes each op in float64, one scalar loop per formula; `cpu/` and `cuda/` are tested
//    against it (tests/kernels). The versions of an op live in files of the same name, or in row_ops and
//    rope.
namespace lariat {

class Backend;

// Owning block of backend memory; empty by default, movable.
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

// A weight, and the memory that a backend made for it: none where it uses the host's in place.
struct LoadedWeight {
  Weight weight;
  Buffer memory;
};

// A norm over a row x of n values. No weight: there is none.
//   RMSNorm (arXiv 1910.07467):             x / sqrt(mean(x^2) + eps) * weight
//   LayerNorm (arXiv 1607.06450), centred:  (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight
// and + bias, where there is one.
struct Norm {
  Matrix weight, bias;  // one row of n each
  float eps = 0.0F;
  bool centred = false;

  explicit operator bool() const { return static_cast<bool>(weight); }
};

// Steps between the projections of q, k and v and the cache; an absent matrix means "not in this model".
struct QkvEpilogue {
  Matrix q_bias, k_bias, v_bias;  // one row of n_heads (n_kv_heads) * head_dim
  Matrix q_norm, k_norm;          // one row of head_dim: RMSNorm over each head (Qwen3)
  float norm_eps = 0.0F;
  float clip = 0.0F;  // c: q, k and v are brought into [-c, c] behind their biases (MPT, OLMo); 0: not
  // Rotates the keys that are stored a second time (KvLayer::second_k_offset); null: none are.
  const RopeTable* second_rope = nullptr;
};

struct AttentionParams {
  int64_t n_heads = 0;   // query heads; a multiple of the cache's n_kv_heads (GQA, arXiv 2305.13245)
  float scale = 0.0F;    // 1 / sqrt(head_dim)
  float softcap = 0.0F;  // c: a score s becomes c tanh(s / c) (Gemma 2, arXiv 2408.00118); 0: as it is
  // ALiBi (arXiv 2108.12409): slopes[h] * (j - p) joins the score of the token at p for the one at j, the
  // distance as an integer. f32, one row of n_heads, in the backend's memory; empty: none.
  Matrix slopes{};
  // A score per head that takes its part of the softmax and has no value (gpt-oss); as slopes.
  Matrix sinks{};
};

// The function that a feed-forward block applies to its gate or, without a gate, to its inner values.
enum class Activation : uint8_t {
  kSilu,      // x / (1 + exp(-x)): SwiGLU
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GeGLU as Gemma has it
  kGelu,      // 0.5 x (1 + erf(x / sqrt(2))), arXiv 1606.08415
  // Of glu alone, and with an up: min(x, 7) / (1 + exp(-1.702 min(x, 7))) times 1 + up, that within [-7, 7]
  // before (gpt-oss).
  kClamped,
};
inline constexpr float kClampedLimit = 7.0F, kClampedSlope = 1.702F;

// The end of a linear: its products become this before they go to memory.
struct Epilogue {
  enum class Kind : uint8_t { kNone, kResidual, kGated, kCap };
  Kind kind = Kind::kNone;
  Matrix residual{};        // kResidual
  Norm norm{};              // kResidual; of what follows, or nothing
  float scale = 1.0F;       // kResidual, kCap
  float cap = 0.0F;         // kCap; 0: none
  Activation activation{};  // kGated

  // residual[t] += scale * product[t]; out[t] = norm(residual[t]). Without a norm, what is left in out is not
  // specified. out overlaps neither x nor residual.
  static Epilogue add_to(const Matrix& residual, float scale, const Norm& norm) {
    return {.kind = Kind::kResidual, .residual = residual, .norm = norm, .scale = scale};
  }
  // Two blocks, gate | up: out = activation(gate) * up, a gated linear unit (arXiv 2002.05202). One block:
  // out = activation of it. Into an `out` of bf16, a backend may round the products to bf16 before the
  // activation, as transformers does: an element of products g and u then differs by up to 2^-8 |u| (1.13 |g|
  // + |activation(g)|), 1.13 being the steepest slope, before out is rounded.
  static Epilogue gated(Activation activation) { return {.kind = Kind::kGated, .activation = activation}; }
  // out = scale * product, and then, with a cap above 0, cap * tanh(out / cap): of logits.
  static Epilogue capped(float scale, float cap) { return {.kind = Kind::kCap, .scale = scale, .cap = cap}; }
};

// How a token finds its experts from the router's logits l, one per expert. Its scores are s = softmax(l), or
// sigmoid(l). Choosing goes by s + choice_bias: of n_groups equal runs of experts only the kept_groups best
// take part (the best: by their largest value, or with a choice_bias by the sum of their two largest;
// DeepSeek-V2 and V3, arXiv 2405.04434, 2412.19437), and of those the n_chosen experts with the largest
// value, the first of equals, in falling order. An expert's weight is its s: divided by the sum of the chosen
// ones' where `normalise`, then times `scale`.
struct Router {
  int64_t n_chosen = 1;
  bool sigmoid = false;
  Matrix choice_bias{};  // f32, one row of n_experts, in the backend's memory; empty: zeros
  int64_t n_groups = 1, kept_groups = 1;
  bool normalise = false;
  float scale = 1.0F;
};

// Which experts each token of a step goes to, and with what weight; stays in the backend's memory.
struct Routing {
  int32_t* experts = nullptr;  // [tokens][n_chosen], each in [0, n_experts)
  Matrix weights;              // f32 [tokens, n_chosen]
};

// For embed: the token that Backend::draw drew last from row `row` of the logits, wherever it is.
constexpr int32_t drawn_token(size_t row) { return -1 - static_cast<int32_t>(row); }

// The token behind what Backend::read_drawn gives, which is negative where the largest logit is not finite.
constexpr int32_t token_of(int32_t drawn) { return drawn < 0 ? -1 - drawn : drawn; }

// How a token is drawn from logits; see Backend::draw.
struct Sampling {
  float temperature = 0.0F;  // 0: the likeliest, whatever the rest says
  int32_t top_k = 0;         // keep the k likeliest; 0: all
  float top_p = 1.0F;        // keep the likeliest that together reach p (arXiv 1904.09751); 1: all
  float min_p = 0.0F;        // keep those with p >= min_p * p_max (arXiv 2407.01082); 0: all
};

// Numbers of a cache that were stored as +-65504, the largest that f16 holds, mostly in place of larger ones.
struct Saturation {
  int64_t keys = 0, values = 0;
};

// A backend's properties, and what it takes.
struct Traits {
  bool host_memory = true;    // its memory is the host's: what is mapped there is used in place
  bool asynchronous = false;  // ops return before they are done
  bool copies_bf16 = false;   // load_weight copies weights in bf16 into another order
  bool quantizes = true;      // load_weight and the linear ops take quantised dtypes (kernels/quant.h)
  // A step has memory for at least this many tokens: it stays where a backend that records steps finds it.
  int64_t steady_tokens = 16;
  // Whether attention over such a cache runs on the fastest units there are; over others it is several times
  // slower.
  bool (*fast_attention)(DType k_dtype, DType v_dtype, int64_t head_dim) = [](DType, DType, int64_t) {
    return true;
  };
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "cpu", "cuda", "reference"
  virtual std::string description() const = 0;  // the hardware, in words, for reports
  virtual Traits traits() const { return {}; }

  // --- memory ---------------------------------------------------------------------------------------
  // Uninitialised memory, aligned to 64 bytes. Throws Error (how much was asked for) when there is none.
  virtual Buffer allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) noexcept = 0;  // called by Buffer
  virtual void copy_in(void* dst, const void* host_src, size_t bytes) = 0;
  virtual void copy_out(void* host_dst, const void* src, size_t bytes) = 0;
  virtual void copy(void* dst, const void* src, size_t bytes) = 0;  // within the backend; no overlap

  // The blocks of a weight, without biases, as this backend's linear wants them: each brought into its one of
  // `forms` where its own differs, for inputs that are rounded to `compute`. The CPU uses floats of that
  // dtype in place, so that they must outlive the weight. Quantised forms (kernels/quant.h) only where
  // traits() say so. The backend must outlive the weight.
  virtual LoadedWeight load_weight(std::span<const HostWeight> host, std::span<const WeightFormat> forms,
                                   DType compute) = 0;

  // Returns when everything that was asked for is done; for timing. A CPU always is.
  virtual void synchronize() {}

  // --- ops ------------------------------------------------------------------------------------------
  // out[t] = scale * table[tokens[t]], converted to f32. tokens: host memory, n ids in [0, table.rows), or
  // drawn_token(j) for the token_of what was drawn last from row j. table: a matrix as load_weight gives it,
  // or, where traits() have host memory, codes of which only the rows asked for are made.
  virtual void embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
                     const Matrix& out) = 0;

  // out[t] = norm(x[t]). out may be x.
  virtual void norm(const Matrix& x, const Norm& norm, const Matrix& out) = 0;

  // residual[t] += scale * delta[t]; out[t] = norm(residual[t]), if there is one. out may be delta.
  virtual void add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                        const Matrix& out) = 0;

  // product[t][o] = sum_i x[t][i] w[o][i] + bias[o], accumulated in f32, of every block of the weight, whose
  // outputs lie side by side; out: what the epilogue makes of it. x: f32, or of dtype weight.input.
  // Splitting the rows: on the CPU a row's bits depend on neither the other rows nor the threads, but float w
  // have two kernels with two orders of summation, for up to 8 rows and for more. Between the two, and
  // anywhere on a GPU, a sum of k products may differ by what f32 accumulation costs: 2^-24 sum |x_i w_i| is
  // its standard deviation (tests/kernels/linear_cases.h). Quantised w: the same bits for any number of rows.
  virtual void linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) = 0;

  // For token i of sequence s: table.cos/sin[row][j] = cos/sin(ropes[s].angle(i, its place, j)), in double,
  // reduced in double, then rounded to f32; table.q_scale[row] = ropes[s].q_scale, and the
  // token's of table.whole_q_scale where there is that. One
  // entry of `ropes` per sequence of the step. A model with several RoPE tables calls this once for each.
  // q_scale of a table that rotates nothing need not be written.
  virtual void rope_table(const Step& step, std::span<const SequenceRope> ropes, const RopeTable& table) = 0;

  // For every token of the step, at position p of its sequence, per head:
  //   q = rms_norm(clip(q + q_bias), q_norm)                     in place, not rotated: attention does that
  //   k = rope(rms_norm(clip(k + k_bias), k_norm)); K[p] = k     (rounded to k_dtype)
  //   likewise the layer's second keys, where there is epilogue.second_rope
  //   V[p] = clip(v + v_bias)                                    (rounded to v_dtype; kQ8:
  //   kernels/kv_values.h)
  // where K and V are `layer`'s part of the sequence's pages. No v: values are not stored (MLA, whose
  // attention reads the keys for values too). What f16 cannot hold becomes +-65504, and is counted
  // (saturated()): one infinity in the cache would make every later token NaN. q: f32 [tokens, n_heads *
  // head_dim]; k, v: f32 [tokens, n_kv_heads * head_dim] (may be overwritten). No q: nothing happens to
  // queries.
  virtual void qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                            const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) = 0;

  // Reads what qkv_to_cache stored, for a `layer` of one KV head and the step's tokens: out[t n + c][d] =
  // K[p][first + d], n copies for each token, c < n. f32 [tokens * n, up to head_dim].
  virtual void keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) = 0;

  // Returns what qkv_to_cache and, of the numbers that it rotates, rerotate_keys stored as +-65504 in f16
  // since this backend was made. Waits for them.
  virtual Saturation saturated() = 0;

  // Causal attention of the step's tokens over their sequences' caches, which already hold them. For the
  // token at position p of its sequence, head h reads KV head h / (n_heads / n_kv_heads), and for the keys j
  // of each of up to kMaxRanges ranges, which do not overlap,
  //   q' = rope(q[row][h]) times rope.whole_q_scale[row], its rotated dimensions times rope.q_scale[row], of
  //   that range
  //   s_j = cap(params.scale * q' . K[j]) + params.slopes[h] * (j - p)
  //   out[row][h] = softmax_j(s_j) V[j],   j of all ranges, and a score params.sinks[h] without a value
  // One pass with a running maximum (online softmax, arXiv 1805.02867; FlashAttention, arXiv 2205.14135).
  // Splitting the tokens: on one CPU thread a row's bits depend only on which of two kernels the sequence's
  // rows go through, for fewer than 24 rows (tokens x query heads per KV head) or for more. Several threads
  // share out the positions of a sequence with fewer than 384 rows from position 512 on, and merging the
  // parts rounds again. Otherwise the difference is that of f32 sums in another order, as in linear; on a CPU
  // with AMX, of bf16 operands where 24 or more rows meet bf16 values and keys of 16 bits.
  // q: f32 [tokens, n_heads * head_dim]; out: [tokens, n_heads * value_dim], value_dim <= head_dim: the
  // first value_dim numbers of each V[j] (latent attention, whose heads have shorter values than keys).
  static constexpr int kMaxRanges = 3;
  virtual void attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges,
                         const KvLayer& layer, const AttentionParams& params, const Matrix& out) = 0;

  // Re-rotates cached keys in place: for every sequence, every one of `layers`, head and place p <
  // n_positions,
  //   K[p] = R(angle(p)) K[p]
  // angles in double; keys read, rotated in f32 and rounded back to k_dtype as in qkv_to_cache.
  virtual void rerotate_keys(std::span<const KeyRotation> sequences, std::span<const KvLayer> layers,
                             bool interleaved) = 0;

  // out[t][i] = activation(gate[t][i]) * up[t][i] (gated linear units, arXiv 2002.05202). No up: without the
  // product. out may be gate.
  virtual void glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) = 0;

  // The experts of every token, from the router's logits, f32 [tokens, n_experts <= 512]. A row of NaN
  // chooses experts all the same.
  virtual void route(const Matrix& logits, const Router& router, const Routing& routing) = 0;

  // out[t n + j] = block[routing.experts[t n + j]].w row(t, j), n = n_chosen, for all tokens and choices, in
  // f32, and + the block's row of weight.biases where there are some. x has a row for each token and choice,
  // row(t, j) = x[t n + j], or one for each token, which all its experts read: row(t, j) = x[t]. Blocks of
  // one shape and dtype, without biases of their own; of routing.weights only the shape is used, and x.rows
  // says which of the two it is. The rest as in linear, whose two kernels are chosen by the number of rows
  // that a block gets; quantised, one kernel takes any number, since the chunks of a prefill share out the
  // rows of a block. Only the weights of chosen blocks are read.
  virtual void grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                              const Matrix& out) = 0;

  // out[t] = (add ? out[t] : 0) + sum_j routing.weights[t][j] x[t n + j], in the order of j.
  virtual void combine_experts(const Matrix& x, const Routing& routing, bool add, const Matrix& out) = 0;

  // Draws a token from each row t of the logits by how[t], T being its temperature, with the uniform number
  // u = uniforms[t] in [0, 1). Tokens are in the order of falling logits (by id among equals), with the
  // weight
  //   w = exp((logit - largest logit) / T)                             in double
  // Kept are the first top_k; of them the shortest beginning that has at least top_p of their weight; of
  // those the ones with w >= min_p. Drawn is the first at which the running sum of weights, its own included,
  // exceeds u times the sum of all kept: the same token on every backend, unless u is within rounding of the
  // border between two. T = 0: the first token of all. NaN and -inf are never drawn. In a row with
  // no finite logit, or with +inf, none is: its place is taken by -1 - i, i being the first place of the
  // largest value, or 0 where all are NaN. Empty how or uniforms: every T is 0.
  // The draw is queued, and its tokens stay in the backend's memory until the next one: embed takes them
  // there, so that the step behind them can be queued before anybody has seen them.
  virtual void draw(const Matrix& logits, std::span<const Sampling> how,
                    std::span<const double> uniforms) = 0;

  // Copies what was drawn last to ids, host memory, one for each row. Waits for the draw alone, not for what
  // was queued behind it.
  virtual void read_drawn(std::span<int32_t> ids) = 0;

  // nll[t] = log(sum_v exp(logits[t][v])) - logits[t][targets[t]], accumulated in double. host memory.
  // A logit of -inf counts as probability 0 (nll = inf for such a target); NaN for a row with a NaN, with
  // +inf or with nothing but -inf.
  virtual void token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) = 0;
};

// For load_weight: the blocks in their forms and where they are to lie, one behind the other in new
// memory, but for those that are used in place, being floats of their dtype already. tiled: matrices of bf16
// that are computed in bf16 get the order of tiles. What is to be written is left to the caller.
LoadedWeight lay_out_weight(Backend& backend, std::span<const HostWeight> host,
                            std::span<const WeightFormat> forms, DType compute, bool in_place,
                            bool tiled = false);

inline void Buffer::Release::operator()(void* data) const noexcept { owner->release(data, bytes); }

}  // namespace lariat
