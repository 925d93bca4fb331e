#pragma once
#include <span>
#include <string_view>

#include "models/io/json_fields.h"
#include "models/spec/gate.h"
#include "models/spec/rope_config.h"
#include "models/spec/spec.h"

// Supported families, one per file of this folder.
namespace lariat {

// Differences of a family's GGUF files. Families may share an architecture.
struct GgufFamily {
  std::string_view architecture{};  // general.architecture; "": no GGUF files
  std::string_view when{};  // architecture key with a value of at least `least` in this family's files
  int64_t least = 1;
  std::string_view bias = "attn_output";  // its bias means attention_bias
  bool paired_rows = false;               // the converter orders the rows of q and k by pairs
  bool norms_hold_one = false;            // the converter adds the norms' 1 to their weights
  bool layer_norm = false;                // norm_eps has LayerNorm's key
  std::string_view names{};   // layer parts with other names than in other families' files (gguf_names.cpp)
  std::string_view strips{};  // parts of general.name: llama.cpp drops white space after their special tokens
  void (*adapt)(nlohmann::json& config) = nullptr;  // corrects the converted config
};

struct Family {
  std::string_view name;
  std::string_view model_type;
  ModelSpec (*read)(const JsonFields& config);
  std::string_view alias{};     // alternative name
  bool in_transformers = true;  // false: the files name custom code
  bool has_rope = true;
  GgufFamily gguf{};
};

std::span<const Family> families();

// Reads the RoPE of an unsupported family as a Llama's; warns of the family and of unread keys about
// positions. named_by: the key of the family's name.
RopeScaling read_foreign_rope(const JsonFields& config, std::string_view named_by,
                              std::vector<std::string>& warnings);

// The file or, for a model with images, its text_config and some top-level keys.
struct TextPart {
  nlohmann::json json;
  std::string prefix;  // "" or "text_config."
};

// Throws Error if the top level has a wrong type.
TextPart text_part(const nlohmann::json& config, const std::string& file);

#define LARIAT_FAMILY(architecture, type, reader, ...) ModelSpec reader(const JsonFields& config);
#include "models/families/families.def"

inline constexpr std::string_view kMixtralParts =
    "ffn_gate_inp block_sparse_moe.gate ffn_gate_exps block_sparse_moe.experts.{}.w1 "
    "ffn_up_exps block_sparse_moe.experts.{}.w3 ffn_down_exps block_sparse_moe.experts.{}.w2";
inline constexpr std::string_view kGraniteParts =
    "ffn_gate_inp block_sparse_moe.router.layer ffn_gate_exps block_sparse_moe.{}.gate "
    "ffn_up_exps block_sparse_moe.{}.up ffn_down_exps block_sparse_moe.{}.output_linear "
    "ffn_down_shexp shared_mlp.output_linear";
inline constexpr std::string_view kGpt2Parts =
    "token_embd transformer.wte position_embd transformer.wpe output_norm transformer.ln_f blk transformer.h "
    "attn_norm ln_1 attn_qkv attn.c_attn attn_output attn.c_proj ffn_norm ln_2 ffn_up mlp.c_fc "
    "ffn_down mlp.c_proj";
inline constexpr std::string_view kHunyuanParts =
    "attn_q_norm self_attn.query_layernorm attn_k_norm self_attn.key_layernorm ffn_gate_inp mlp.gate.wg "
    "ffn_gate_shexp mlp.shared_mlp.gate_proj ffn_up_shexp mlp.shared_mlp.up_proj "
    "ffn_down_shexp mlp.shared_mlp.down_proj";
using AdaptConfig = void(nlohmann::json& config);
AdaptConfig adapt_baichuan, adapt_mistral4, adapt_gemma, adapt_granite, adapt_granite_moe, adapt_mixtral,
    adapt_qwen2_moe, adapt_qwen3_moe, adapt_qwen3_vl_moe, adapt_deepseek, adapt_gpt_oss, adapt_olmoe,
    adapt_ernie, adapt_ernie_moe, adapt_exaone, adapt_youtu, adapt_minicpm, adapt_qwen, adapt_phi,
    adapt_starcoder2, adapt_stablelm, adapt_cohere, adapt_gpt2, adapt_orion, adapt_nemotron, adapt_apertus,
    adapt_hunyuan_moe;

// --- shared by families ------------------------------------------------------------------------------------

// Accepted limits. kMaxIntermediate holds for all experts of a layer together (check_experts). layers *
// hidden * intermediate stays below 2^58: derived sizes cannot overflow.
inline constexpr int64_t kMaxLayers = 10000, kMaxHidden = 1 << 20, kMaxIntermediate = 1 << 24;
inline constexpr int64_t kMaxVocab = 1 << 24, kMaxHeads = 1 << 16, kMaxHeadDim = 1024,
                         kMaxContext = INT32_MAX, kMaxExperts = 512, kMaxMatrices = 1 << 18;

// Key names of a family, separated by spaces: the first present is used. "": always the default.
struct KeyNames {
  std::string_view vocab_size = "vocab_size";
  std::string_view hidden_size = "hidden_size", intermediate_size = "intermediate_size";
  std::string_view n_layers = "num_hidden_layers", n_heads = "num_attention_heads";
  std::string_view max_position_embeddings = "max_position_embeddings", norm_eps = "rms_norm_eps";
  std::string_view n_kv_heads = "num_key_value_heads", head_dim = "head_dim", activation = "hidden_act";
};

struct Defaults {
  KeyNames keys{};
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008;
  int64_t n_layers = 32, n_heads = 32;
  int64_t n_kv_heads = 0;  // 0: n_heads
  int64_t head_dim = 0;    // 0: hidden_size / heads
  int64_t max_position_embeddings = 2048;
  double norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  std::optional<int64_t> bos_token_id, eos_token_id;
  std::optional<double> local_rope_theta;  // RoPE base of layers with a window, if separate
  RopeDefaults rope{};                     // without head_dim and max_position_embeddings
  const char* activation = "silu";
  bool has_rope = true;  // false: no RoPE keys
};

// Reads the keys of all Llama-like decoders. Layers are equal, without biases, head norms and windows.
// Refuses settings that no family supports.
ModelSpec read_decoder(const JsonFields& config, const Defaults& defaults);

// ALiBi (arXiv 2108.12409): slopes 2^(-bias_max i / n), i = 1 .. n, n = bit_floor(n_heads), then odd i of 2n
// slopes (transformers 5.23, build_alibi_tensor, build_mpt_alibi_tensor).
void use_alibi(double bias_max, ModelSpec& spec);

// Throws Error if a layer's experts together are too wide, or experts and latent heads are too many.
void check_experts(const JsonFields& config, const ModelSpec& spec);

// n_shared: experts for every token.
void use_experts(const ExpertsSpec& experts, int64_t n_shared, LayerSpec& layer);
// By Mixtral's keys, in all layers.
void use_mixtral_experts(const JsonFields& config, ModelSpec& spec);

// GPT-2's names of the embedding, the layers and the norms.
void use_gpt2_names(TensorNames& names);
// scale_emb, dim_model_base and scale_depth, with their defaults.
void read_minicpm_multipliers(const JsonFields& config, double scale_emb, double dim_model_base,
                              double scale_depth, ModelSpec& spec);

// Adds eos_token_id (one or a list), each once; warns of ids outside the vocabulary.
void add_eos_tokens(const JsonFields& config, ModelSpec& spec);

// null means none (0), a missing key means `missing`.
int64_t read_window(const JsonFields& config, int64_t missing);

// True for layers with a window; empty without `layer_types`. Throws Error for an unknown type or a wrong
// number of entries.
std::vector<bool> read_sliding_layers(const JsonFields& config, size_t n_layers);

// Reads one window for all layers. Throws Error if `layer_types` disagrees.
void read_one_window(const JsonFields& config, int64_t missing, ModelSpec& spec);

// Sets window and local RoPE (if any) in sliding layers; without `layer_types`, in all but each `every`-th.
void read_mixed_windows(const JsonFields& config, int64_t window, int64_t every, ModelSpec& spec);

// attention_bias covers all four projections.
void read_biases(const JsonFields& config, bool has_mlp_bias, ModelSpec& spec);

// Throws Error if `layer_types` contradicts a model with one kind of layer. transformers ignores the key, but
// the file's author meant another model.
void check_sliding_layers(const JsonFields& config, const ModelSpec& spec);

}  // namespace lariat
