#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/error.h"
#include "models/spec/position_method.h"
#include "models/spec/rope.h"

// A model as plain data: models/families fills it from config.json, models/run runs it.
namespace lariat {

// RMSNorm of q and k: per head before RoPE (Qwen 3) or after it (Hunyuan), or over all heads together, before
// it (OLMo 2).
enum class QkNorm : uint8_t { kNone, kPerHead, kAllHeads, kAfterRope };

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). The cache holds one row per token: rope_dim
// rotated values, shared by all heads, and kv_rank normed latent values l. Head h has the key (rotated
// values, U_h l) and the value V_h l. Since q . U_h l = (U_h^T q) . l, attention can run over the rows as a
// single KV head and apply V_h to the result ("absorbed"). A long step may expand the rows to keys and values
// of all heads.
struct LatentSpec {
  int64_t q_rank = 0;                             // latent size of queries; 0: no compression
  int64_t kv_rank = 0;                            // 0: no latent attention
  int64_t rope_dim = 0, nope_dim = 0, v_dim = 0;  // per head: rotated, not rotated, values
  float norm_eps = 1e-6F;                         // of the latent norms

  int64_t query_dim() const { return rope_dim + nope_dim; }  // not absorbed

  explicit operator bool() const { return kv_rank > 0; }
};

struct AttentionSpec {
  int64_t n_heads = 0, n_kv_heads = 0;  // n_kv_heads divides n_heads
  int64_t head_dim = 0;                 // latent attention: size of the cached row, rope_dim + kv_rank
  LatentSpec latent;
  bool qkv_bias = false, o_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  int rope = 0;  // index in ModelSpec::ropes; -1: no RoPE
  float scale = 0.0F;
  float clip = 0.0F;           // QkvEpilogue::clip
  float softcap = 0.0F;        // AttentionParams::softcap; 0: none
  int64_t sliding_window = 0;  // 0: full attention; w: the last w positions, the token's own included
  bool sinks = false;          // AttentionParams::sinks
};

// Mixture of experts (arXiv 2401.04088).
struct ExpertsSpec {
  int64_t n = 0;  // 0: none
  int64_t intermediate_size = 0;
  Router router;  // without choice_bias (ExpertWeights)
  bool choice_bias = false;
  bool bias = false;           // of router logits, gate, up and down
  bool shared_router = false;  // weighs the shared expert (Routing::shared_logits)

  int64_t n_logits() const { return n + (shared_router ? 1 : 0); }
};

// down(activation(gate x) * up x); if not gated, down(activation(up x)). Experts' outputs are added.
struct FeedForwardSpec {
  int64_t intermediate_size = 0;  // 0: experts only
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;  // of gate, up and down
  ExpertsSpec experts;
};

// Decoder layer: x += m after(attention(before(x))); x += m after(feed_forward(before(x))). before and after
// are separate norms, or nothing. Parallel: both read the same x.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  bool norm_before = true, norm_after = false, parallel = false;
  float residual_multiplier = 1.0F;  // m
};

// Calls see(all numbers of a layer, in order); a field missing here does not compile.
template <class See>
void each_field(const LayerSpec& layer, const See& see) {
  const auto& [attention, feed_forward, norm_before, norm_after, parallel, residual_multiplier] = layer;
  const auto& [n_heads, n_kv_heads, head_dim, latent, qkv_bias, o_bias, qk_norm, rope, scale, clip, softcap,
               sliding_window, sinks] = attention;
  const auto& [q_rank, kv_rank, rope_dim, nope_dim, v_dim, norm_eps] = latent;
  const auto& [intermediate_size, activation, gated, bias, experts] = feed_forward;
  const auto& [n, expert_size, router, choice_bias, expert_bias, shared_router] = experts;
  see(n_heads, n_kv_heads, head_dim, qkv_bias, o_bias, qk_norm, rope, scale, clip, softcap, sliding_window,
      sinks, q_rank, kv_rank, rope_dim, nope_dim, v_dim, norm_eps, intermediate_size, activation, gated, bias,
      n, expert_size, choice_bias, expert_bias, shared_router, router.n_chosen, router.sigmoid,
      router.n_groups, router.kept_groups, router.normalise, router.scale, norm_before, norm_after, parallel,
      residual_multiplier);
}

// Tensor names. A layer's names start with `layer`; {} is the layer's or expert's index. A projection or norm
// is name + ".weight", its bias name + ".bias"; one tensor without index holds all experts' biases.
// Projections of equal name are rows of one tensor: q, k, v (or by KV head); gate, up. *_gate_up: if stored.
struct TensorNames {
  std::string root = "model.";
  std::string embed = "embed_tokens", norm = "norm", head = "lm_head";
  std::string layer = "layers.{}.";
  std::string attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm";  // equal: one norm
  std::string attention_post_norm = "post_attention_layernorm";
  std::string ffn_post_norm = "post_feedforward_layernorm";
  std::string q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", o = "self_attn.o_proj";
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string sinks = "self_attn.sinks", xielu = "mlp.act_fn.";  // xielu: prefix of its four numbers
  bool swapped_halves = false;  // of each head's rows of q and k (nanochat, whose RoPE rotates backwards)
  bool qkv_by_kv_head = false;  // rows by KV head: its query heads, its key, its value (InternLM 2)
  std::string embedding_norm = "";
  std::string positions = "wpe";  // ModelSpec::learned_positions
  std::string q_a = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm", q_b = "self_attn.q_b_proj";
  std::string kv_a = "self_attn.kv_a_proj_with_mqa", kv_a_norm = "self_attn.kv_a_layernorm";
  std::string kv_b = "self_attn.kv_b_proj";
  std::string k_b = "self_attn.k_b_proj", v_b = "self_attn.v_b_proj";  // in place of kv_b (Layout::split_kv)
  std::string shared_gate = "mlp.shared_experts.gate_proj", shared_up = "mlp.shared_experts.up_proj";
  std::string shared_down = "mlp.shared_experts.down_proj", shared_gate_up = "";  // in layers with experts
  std::string router = "mlp.gate", shared_router = "mlp.shared_expert_gate";
  std::string choice_bias = "mlp.gate.e_score_correction_bias";
  std::string expert_gate = "mlp.experts.{}.gate_proj", expert_up = "mlp.experts.{}.up_proj";
  std::string expert_down = "mlp.experts.{}.down_proj", expert_gate_up = "mlp.experts.gate_up_proj";
  // Suffixes of ignored tensors: transformers up to 4.31 stored RoPE frequencies.
  std::string redundant = "rotary_emb.inv_freq";
};

// A setting of a file; get() throws Error if the value is invalid.
template <class T>
struct Setting {
  T value{};
  std::string error{};  // empty: valid; otherwise `value` is the default
  const T& get() const {
    if (!error.empty()) throw Error(error);
    return value;
  }
};

// generation_config.json, with transformers' defaults.
struct GenerationDefaults {
  Setting<float> temperature;  // 0: greedy decoding, ignoring the next three
  Setting<int32_t> top_k;
  Setting<float> top_p{1.0F}, min_p;
  Setting<float> repetition_penalty{1.0F};
  Setting<std::vector<std::string>> stop;
  std::vector<std::string> warnings;  // for generation only
};

// Factor of a query at position p: 1 + log_beta ln g, where g is 1 + floor(p / log_ctx) (Llama 4) or, without
// steps, max(1, (p + 1) / log_ctx) (Qwen 1).
struct QueryScale {
  double log_beta = 0.0;  // 0: no factor
  int64_t log_ctx = 1;
  bool log_steps = true;

  double at(int64_t p) const {
    const int64_t beyond = log_steps ? p / log_ctx * log_ctx : std::max<int64_t>(p + 1 - log_ctx, 0);
    return 1.0 + log_beta * std::log1p(static_cast<double>(beyond) / static_cast<double>(log_ctx));
  }
};

// A parsed model: every field is validated.
struct ModelSpec {
  std::filesystem::path file;  // config.json, for error messages
  std::string family;          // entry of "architectures"
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t max_position_embeddings = 0;
  float norm_eps = 0.0F;
  bool layer_norm = false, norm_bias = false;  // LayerNorm in place of RMSNorm; norm biases
  bool embedding_norm = false;                 // norm after the embedding (BLOOM)
  bool norm_plus_one = false;                  // norms multiply by 1 + weight (Gemma)
  bool unit_norms = false;                     // norms have no weights (nanochat)
  bool tie_word_embeddings = false;
  bool head_bias = false, unit_head_rows = false;  // bias of the logits; rows of length 1 (Baichuan 2)
  bool qk_norm_if_stored = false;                  // q and k norms are optional (older MiniMind)
  float embedding_multiplier = 1.0F;
  bool round_embedding_multiplier = false;  // rounded to the embeddings' dtype (Gemma)
  float logits_multiplier = 1.0F;
  float logits_softcap = 0.0F;      // c: c tanh(logits / c); 0: none
  std::vector<LayerSpec> layers;    // at least one
  std::vector<float> alibi_slopes;  // AttentionParams::slopes; empty: none
  bool learned_positions = false;   // added to embeddings, max_position_embeddings rows (GPT-2)
  // RoPEs of the layers (AttentionSpec::rope); without RoPE, one unused entry. A session can scale the first
  // (SessionOptions::rope). Layers with a window can have a second (Gemma 3, OLMo 3).
  std::vector<RopeScaling> ropes{RopeScaling()};
  bool scores_take_mscale = false;  // DeepSeek's YaRN (rope_score_scale)
  // Axis (time, height or width) of each dimension pair; empty: no M-RoPE.
  std::vector<uint8_t> mrope_axes;
  QueryScale query_scale;
  PositionMethod position_method;  // of config.json; no ranges: none
  DType dtype = DType::kF32;       // torch_dtype / dtype
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // of generation_config.json, else of config.json
  GenerationDefaults generation;       // of the same file
  std::string_view bias_keys;          // config.json keys of projection biases, if any
  int64_t n_unread_layers = 0;         // multi-token prediction layers in the checkpoint
  TensorNames names;
  std::vector<std::string> warnings;

  bool has_rope() const { return alibi_slopes.empty() && !learned_positions; }
  // Names the positions of a model without RoPE.
  std::string position_kind() const { return learned_positions ? "learned positions" : "ALiBi"; }
  // Norms that divide any factor of cos and sin away.
  bool norms_after_rope() const { return layers.front().attention.qk_norm == QkNorm::kAfterRope; }
  bool scales_queries() const { return query_scale.log_beta != 0.0 || scores_take_mscale; }
  const RopeScaling& rope() const { return ropes.front(); }
  RopeScaling& rope() { return ropes.front(); }
};

// Calls see(all numbers of a model's computation, except layers, ALiBi, M-RoPE and RoPEs).
template <class See>
void each_field(const ModelSpec& s, const See& see) {
  see(s.vocab_size, s.hidden_size, s.norm_eps, s.layer_norm, s.norm_bias, s.embedding_norm, s.norm_plus_one,
      s.tie_word_embeddings, s.embedding_multiplier, s.round_embedding_multiplier, s.logits_multiplier,
      s.logits_softcap, s.scores_take_mscale, s.query_scale.log_beta, s.query_scale.log_ctx,
      s.query_scale.log_steps);
}

}  // namespace lariat
