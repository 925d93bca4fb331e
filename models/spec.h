#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/error.h"
#include "models/positions/position_method.h"
#include "models/rope.h"

// A model as plain data: all in which the decoders of the families differ. A family
// (models/families) makes a ModelSpec of a config.json; models/decoder interprets it and knows no family.
namespace lariat {

// RMSNorm of q and k before RoPE: over each head (Qwen 3), or over all heads together (OLMo 2).
enum class QkNorm : uint8_t { kNone, kPerHead, kAllHeads };

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). A token's keys and values are products of one
// normed row of kv_rank values, and of rope_dim values that all heads share and that alone are rotated; head
// h has the key (rotated values, U_h row) and the value V_h row. Cached is only (rotated values, row): since
// q . U_h row = (U_h^T q) . row, attention can run over that as one KV head whose values are its keys, with
// V_h applied to what it gives ("absorbed"); a long step makes keys and values of all heads from the rows
// instead, where that costs less (models/latent_attention.cpp).
struct LatentSpec {
  int64_t q_rank = 0;   // of a normed row that queries are made of likewise; 0: of the layer's input
  int64_t kv_rank = 0;  // 0: no latent attention
  int64_t rope_dim = 0, nope_dim = 0, v_dim = 0;  // of each head: rotated, not rotated, values
  float norm_eps = 1e-6F;                         // of the rows

  int64_t query_dim() const { return rope_dim + nope_dim; }  // of a head that is not absorbed

  explicit operator bool() const { return kv_rank > 0; }
};

struct AttentionSpec {
  int64_t n_heads = 0, n_kv_heads = 0;  // n_kv_heads divides n_heads
  int64_t head_dim = 0;                 // of q, k and v; with `latent` of what is cached: rope_dim + kv_rank
  LatentSpec latent;
  bool qkv_bias = false, o_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  int rope = 0;                // of ModelSpec::ropes: what q and k are rotated with; -1: they are not
  float scale = 0.0F;          // of the scores
  float clip = 0.0F;           // of q, k and v (QkvEpilogue::clip)
  float softcap = 0.0F;        // of the scores (AttentionParams::softcap); 0: none
  int64_t sliding_window = 0;  // 0: full attention; w: a token sees the w positions that end at its own
  bool sinks = false;          // heads have scores of their own (AttentionParams::sinks)
};

// Experts: feed-forwards of which each token takes those that a router finds for it (arXiv 2401.04088).
struct ExpertsSpec {
  int64_t n = 0;  // 0: none
  int64_t intermediate_size = 0;
  Router router;             // without its choice_bias
  bool choice_bias = false;  // it has one
  bool bias = false;         // of the router's logits, and of gate, up and down
};

// down(activation(gate x) * up x), or down(activation(up x)) where it is not gated. Experts join it, or stand
// for it where intermediate_size is 0.
struct FeedForwardSpec {
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;  // of gate, up and down
  ExpertsSpec experts;
};

// A decoder layer: x += m after(attention(before(x))); x += m after(feed_forward(before(x))), where before
// and after are norms of their own, or nothing. Parallel: both read the x that the layer was given.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  bool norm_before = true, norm_after = false, parallel = false;
  float residual_multiplier = 1.0F;  // m
};

// Calls see(all numbers of a layer, one after the other); a field that is not named here does not compile.
template <class See>
void each_field(const LayerSpec& layer, const See& see) {
  const auto& [attention, feed_forward, norm_before, norm_after, parallel, residual_multiplier] = layer;
  const auto& [n_heads, n_kv_heads, head_dim, latent, qkv_bias, o_bias, qk_norm, rope, scale, clip, softcap,
               sliding_window, sinks] = attention;
  const auto& [q_rank, kv_rank, rope_dim, nope_dim, v_dim, norm_eps] = latent;
  const auto& [intermediate_size, activation, gated, bias, experts] = feed_forward;
  const auto& [n, expert_size, router, choice_bias, expert_bias] = experts;
  see(n_heads, n_kv_heads, head_dim, qkv_bias, o_bias, qk_norm, rope, scale, clip, softcap, sliding_window,
      sinks, q_rank, kv_rank, rope_dim, nope_dim, v_dim, norm_eps, intermediate_size, activation, gated, bias,
      n, expert_size, choice_bias, expert_bias, router.n_chosen, router.sigmoid, router.n_groups,
      router.kept_groups, router.normalise, router.scale, norm_before, norm_after, parallel,
      residual_multiplier);
}

// How a checkpoint calls its tensors; those of a layer begin with `layer`, in which {} is its index. A
// projection or norm is name + ".weight", its bias name + ".bias"; of an expert {} is its index, and all
// biases are one, whose name has no index. What all but
// the head stand behind, `root` or another, is found in the checkpoint (models/weights.cpp). Projections of
// one name are rows of one tensor: all of q, then of k, then of v, or by KV head (below); all of gate, then
// of up.
struct TensorNames {
  std::string root = "model.";
  std::string embed = "embed_tokens", norm = "norm", head = "lm_head";
  std::string layer = "layers.{}.";
  std::string attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm";
  std::string attention_post_norm = "post_attention_layernorm";
  std::string ffn_post_norm = "post_feedforward_layernorm";
  std::string q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", o = "self_attn.o_proj";
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string sinks = "self_attn.sinks";
  bool qkv_by_kv_head = false;  // for each KV head: its query heads, its key, its value (InternLM 2)
  std::string embedding_norm = "";
  std::string q_a = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm", q_b = "self_attn.q_b_proj";
  std::string kv_a = "self_attn.kv_a_proj_with_mqa", kv_a_norm = "self_attn.kv_a_layernorm";
  std::string kv_b = "self_attn.kv_b_proj";
  std::string k_b = "self_attn.k_b_proj", v_b = "self_attn.v_b_proj";  // instead of kv_b (Layout::split_kv)
  std::string shared_gate = "mlp.shared_experts.gate_proj", shared_up = "mlp.shared_experts.up_proj";
  std::string shared_down = "mlp.shared_experts.down_proj";  // of gate, up and down in layers with experts
  std::string router = "mlp.gate", choice_bias = "mlp.gate.e_score_correction_bias";
  std::string expert_gate = "mlp.experts.{}.gate_proj", expert_up = "mlp.experts.{}.up_proj";
  std::string expert_down = "mlp.experts.{}.down_proj";
  // Ends of names, with a space between them, whose tensors follow from the config and are not read:
  // transformers 4.31 and older stored RoPE's frequencies with each layer.
  std::string redundant = "rotary_emb.inv_freq";
};

// A value out of a file that may be wrong, as long as nobody asks for it.
template <class T>
struct Setting {
  T value{};
  std::string error{};  // says what is wrong; value is then what it is where the file has none
  const T& get() const {
    if (!error.empty()) throw Error(error);
    return value;
  }
};

// How a checkpoint wants texts to be written: its generation_config.json with transformers' defaults. Nothing
// of it is heeded but by who writes a text.
struct GenerationDefaults {
  Setting<float> temperature;  // of a conversation; 0: it asks for no sampling, for which the next three are
  Setting<int32_t> top_k;
  Setting<float> top_p{1.0F}, min_p;
  Setting<float> repetition_penalty{1.0F};
  Setting<std::vector<std::string>> stop;  // texts that end one
  std::vector<std::string> warnings;       // as ModelSpec::warnings, for who writes a text
};

// What whole queries are multiplied with for their place p in the text: 1 + log_beta ln g, g being
// 1 + floor(p / log_ctx) (Llama 4) or, without steps, max(1, (p + 1) / log_ctx) (Qwen 1).
struct QueryScale {
  double log_beta = 0.0;  // 0: nothing
  int64_t log_ctx = 1;
  bool log_steps = true;

  double at(int64_t p) const {
    const int64_t beyond = log_steps ? p / log_ctx * log_ctx : std::max<int64_t>(p + 1 - log_ctx, 0);
    return 1.0 + log_beta * std::log1p(static_cast<double>(beyond) / static_cast<double>(log_ctx));
  }
};

// Every field has been checked: a ModelSpec in hand is usable.
struct ModelSpec {
  std::filesystem::path file;  // the config.json it was read from, for error messages
  std::string family;          // its entry in "architectures"
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t max_position_embeddings = 0;
  float norm_eps = 0.0F;
  bool layer_norm = false, norm_bias = false;  // norms are LayerNorms; they have biases
  bool embedding_norm = false;                 // a norm behind the embedding (BLOOM)
  bool norm_plus_one = false;                  // norms multiply with 1 + weight (Gemma)
  bool tie_word_embeddings = false;            // the head is the embedding table
  bool qk_norm_if_stored = false;  // a checkpoint without norms of q and k is an older kind (MiniMind)
  float embedding_multiplier = 1.0F;
  bool round_embedding_multiplier = false;  // to the dtype of the embeddings (Gemma)
  float logits_multiplier = 1.0F;
  float logits_softcap = 0.0F;      // c: logits become c tanh(logits / c); 0: as they are
  std::vector<LayerSpec> layers;    // at least one
  std::vector<float> alibi_slopes;  // one per head, for AttentionParams::slopes; empty: no ALiBi
  // The RoPEs that layers choose from (AttentionSpec::rope); a model without RoPE has one that none chooses.
  // The first may be stretched, and depend on the length: how far belongs to a session
  // (SessionOptions::rope). A second one is that of layers with a window (Gemma 3, OLMo 3).
  std::vector<RopeScaling> ropes{RopeScaling()};
  // DeepSeek's YaRN: scores are multiplied with the square of its temperature for mscale_all_dim.
  bool scores_take_mscale = false;
  // M-RoPE: which of a token's three positions (time, height, width) turns each pair; empty: not such a
  // model.
  std::vector<uint8_t> mrope_axes;
  QueryScale query_scale;
  PositionMethod position_method;  // of config.json; without ranges: none
  DType dtype = DType::kF32;       // torch_dtype / dtype: what the checkpoint says that it holds
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // of generation_config.json, else of config.json
  GenerationDefaults generation;       // likewise
  std::string_view bias_keys;   // the keys of config.json that give projections biases, where there are any
  int64_t n_unread_layers = 0;  // behind `layers` in the checkpoint: predictors of further tokens
  TensorNames names;
  // Lines that a user should know of and can go on with, each, naming file and key or tensor.
  std::vector<std::string> warnings;

  bool has_rope() const { return alibi_slopes.empty(); }
  bool scales_queries() const { return query_scale.log_beta != 0.0 || scores_take_mscale; }
  const RopeScaling& rope() const { return ropes.front(); }
  RopeScaling& rope() { return ropes.front(); }
};

// Calls see(the numbers that shape what a model computes, beside layers, ALiBi, M-RoPE and RoPEs).
template <class See>
void each_field(const ModelSpec& s, const See& see) {
  see(s.vocab_size, s.hidden_size, s.norm_eps, s.layer_norm, s.norm_bias, s.embedding_norm, s.norm_plus_one,
      s.tie_word_embeddings, s.embedding_multiplier, s.round_embedding_multiplier, s.logits_multiplier,
      s.logits_softcap, s.scores_take_mscale, s.query_scale.log_beta, s.query_scale.log_ctx,
      s.query_scale.log_steps);
}

}  // namespace lariat
