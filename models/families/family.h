#pragma once
#include <span>
#include <string_view>

#include "models/io/json_fields.h"
#include "models/rope_config.h"
#include "models/spec.h"

// The families of checkpoints that run. Each is one file of this folder: what its config.json keys mean, with
// the defaults of those it may leave out, and how its tensors are called where they are not called as Llama's
// are.
namespace lariat {

// How the GGUF files of a family differ from its folders. Families may share an architecture.
struct GgufFamily {
  std::string_view architecture{};  // general.architecture; "": the family has no GGUF files
  std::string_view when{};  // a key of the architecture that is at least `least` in this family's files
  int64_t least = 1;
  bool paired_rows = false;     // llama.cpp's converter orders the rows of q and k by pairs
  bool norms_hold_one = false;  // llama.cpp's converter adds the 1 that norms add to their weights
  std::string_view names{};     // parts of a layer that other families' files call otherwise (gguf_names.cpp)
  std::string_view strips{};    // parts of general.name: after a special token llama.cpp drops white space
  void (*adapt)(nlohmann::json& config) = nullptr;  // corrects the config that the metadata becomes
};

struct Family {
  std::string_view name;                        // in "architectures"
  std::string_view model_type;                  // where that is missing
  ModelSpec (*read)(const JsonFields& config);  // throws Error naming file and key
  std::string_view alias{};                     // another spelling of the name
  bool in_transformers = true;                  // else its files name code of their own
  bool has_rope = true;
  GgufFamily gguf{};
};

// All of families.def.
std::span<const Family> families();

// The RoPE of a config of another family, read as a Llama's, with a warning that says so and one for each key
// of positions that was not read. `named_by` is the key that names the family.
RopeScaling read_foreign_rope(const JsonFields& config, std::string_view named_by,
                              std::vector<std::string>& warnings);

// A decoder's config: the file itself, or of a model with an image part its text_config, with the keys that
// such a file may have at its top instead.
struct TextPart {
  nlohmann::json json;
  std::string prefix;  // of its keys in the file: "" or "text_config."
};

// Throws Error where the top is of a wrong type. `file` names the config in errors.
TextPart text_part(const nlohmann::json& config, const std::string& file);

#define LARIAT_FAMILY(architecture, type, reader, ...) ModelSpec reader(const JsonFields& config);
#include "models/families/families.def"

// GgufFamily::names and GgufFamily::adapt of families.
inline constexpr std::string_view kMixtralParts =
    "ffn_gate_inp block_sparse_moe.gate ffn_gate_exps block_sparse_moe.experts.{}.w1 "
    "ffn_up_exps block_sparse_moe.experts.{}.w3 ffn_down_exps block_sparse_moe.experts.{}.w2";
using AdaptConfig = void(nlohmann::json& config);
AdaptConfig adapt_gemma, adapt_granite, adapt_mixtral, adapt_qwen3_moe, adapt_deepseek, adapt_gpt_oss;

// --- what families share -----------------------------------------------------------------------------------

// Bounds of what is accepted. All experts of a layer together are no wider than kMaxIntermediate
// (check_experts), and the largest product, layers * hidden * intermediate, is below 2^58, so that sizes made
// of them cannot overflow.
inline constexpr int64_t kMaxLayers = 10000, kMaxHidden = 1 << 20, kMaxIntermediate = 1 << 24;
inline constexpr int64_t kMaxVocab = 1 << 24, kMaxHeads = 1 << 16, kMaxHeadDim = 1024,
                         kMaxContext = INT32_MAX, kMaxExperts = 512, kMaxMatrices = 1 << 18;

// How a family calls the keys that every decoder has; of several, separated by a space, the first that is
// there.
// "": it has no such key, and always the default.
struct KeyNames {
  std::string_view vocab_size = "vocab_size";
  std::string_view hidden_size = "hidden_size", intermediate_size = "intermediate_size";
  std::string_view n_layers = "num_hidden_layers", n_heads = "num_attention_heads";
  std::string_view max_position_embeddings = "max_position_embeddings", norm_eps = "rms_norm_eps";
  std::string_view n_kv_heads = "num_key_value_heads", head_dim = "head_dim", activation = "hidden_act";
};

// The values that keys of config.json have where they are missing.
struct Defaults {
  KeyNames keys{};
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008;
  int64_t n_layers = 32, n_heads = 32;
  int64_t n_kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;    // 0: hidden_size / heads
  int64_t max_position_embeddings = 2048;
  double norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  std::optional<int64_t> bos_token_id, eos_token_id;
  std::optional<double> local_rope_theta;  // layers with a window have a RoPE of their own
  RopeDefaults rope{};                     // of these head_dim and max_position_embeddings are the decoder's
  const char* activation = "silu";
  bool has_rope = true;  // else its keys are none of the family's
};

// The functions of a feed-forward by the names that transformers gives them.
std::optional<Activation> find_activation(std::string_view name);

// The keys that every decoder of the Llama kind has: shape, dtype, token ids and RoPE. All layers are equal,
// without biases, head norms and windows: the family adds those. Refuses settings that no family runs.
ModelSpec read_decoder(const JsonFields& config, const Defaults& defaults);

// No RoPE but ALiBi (arXiv 2108.12409): 2^(-bias_max i / n) for heads i = 1 .. n, where n is the largest
// power of two up to n_heads, and for the heads beyond the odd i of twice as many (transformers 5.23,
// build_alibi_tensor and build_mpt_alibi_tensor).
void use_alibi(double bias_max, ModelSpec& spec);

// Throws Error where the experts of a layer are wider than a feed-forward may be, or where experts and heads
// of latent attention, each of which is a matrix, are too many.
void check_experts(const JsonFields& config, const ModelSpec& spec);

// The layer becomes one of experts, beside `n_shared` of their size for every token.
void use_experts(const ExpertsSpec& experts, int64_t n_shared, LayerSpec& layer);

// Adds the object's eos_token_id (one or a list) to the spec's, each once; a warning for those outside the
// vocabulary.
void add_eos_tokens(const JsonFields& config, ModelSpec& spec);

// The `sliding_window` key: null is none (0), a missing key is `missing`.
int64_t read_window(const JsonFields& config, int64_t missing);

// `layer_types`: whether each layer has a sliding window; empty when the key is not there. Throws Error for
// an unknown type or a wrong number of entries.
std::vector<bool> read_sliding_layers(const JsonFields& config, size_t n_layers);

// One window for all layers, read as above. Throws Error where `layer_types` says otherwise.
void read_one_window(const JsonFields& config, int64_t missing, ModelSpec& spec);

// Gives the layers of `layer_types` that slide, or all but each `every`-th when the key is not there, the
// window, and the model's local RoPE where it has one.
void read_mixed_windows(const JsonFields& config, int64_t window, int64_t every, ModelSpec& spec);

// attention_bias of all four projections; mlp_bias, where the family has that key.
void read_biases(const JsonFields& config, bool has_mlp_bias, ModelSpec& spec);

// Throws Error where `layer_types` contradicts a model whose layers are all of one kind: transformers ignores
// the key there and warns; the author of such a file meant another model.
void check_sliding_layers(const JsonFields& config, const ModelSpec& spec);

}  // namespace lariat
