#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "models/rope.h"

// What a model is, as plain data: all in which the decoders of the families differ. A family
// (models/families) makes a ModelSpec of a config.json; models/decoder interprets it and knows no family.
namespace lariat {

struct AttentionSpec {
  int64_t n_heads = 0, n_kv_heads = 0;  // n_kv_heads divides n_heads
  int64_t head_dim = 0;                 // of q, k and v
  bool qkv_bias = false, o_bias = false;
  bool qk_norm = false;        // RMSNorm over each head of q and k, before RoPE
  float scale = 0.0F;          // of the scores
  int64_t sliding_window = 0;  // 0: full attention; w: a token sees the w positions that end at its own
};

// down(silu(gate x) * up x)
struct FeedForwardSpec {
  int64_t intermediate_size = 0;
  bool bias = false;  // of gate, up and down
};

// A decoder layer: x += attention(norm(x)); x += feed_forward(norm(x)), with RMSNorm.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
};

// How a checkpoint calls its tensors; those of a layer begin with `layer`, in which {} is its index. A
// projection or norm is name + ".weight", its bias name + ".bias". All but the head stand behind "model.", or
// behind nothing in files that AutoModel saved.
struct TensorNames {
  std::string embed = "embed_tokens", norm = "norm", head = "lm_head";
  std::string layer = "layers.{}.";
  std::string attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm";
  std::string q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", o = "self_attn.o_proj";
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
};

// Every field has been checked: a ModelSpec in hand is usable.
struct ModelSpec {
  std::filesystem::path file;  // the config.json it was read from, for error messages
  std::string family;          // its entry in "architectures"
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t max_position_embeddings = 0;
  float norm_eps = 0.0F;
  bool tie_word_embeddings = false;  // the head is the embedding table
  std::vector<LayerSpec> layers;     // at least one
  RopeScaling rope;
  DType dtype = DType::kF32;  // torch_dtype / dtype: what the checkpoint says that it holds
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // of generation_config.json, else of config.json
  TensorNames names;
  // What a user should know of the checkpoint and can go on with: a line each, naming file and key or tensor.
  std::vector<std::string> warnings;
};

}  // namespace lariat
