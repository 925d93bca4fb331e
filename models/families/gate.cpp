#include "models/families/gate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "kernels/error.h"
#include "models/safetensors.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

constexpr KeyRule kKeys[] = {
    // Multipliers: Granite, MiniCPM, Cohere, Falcon-H1, T5 and others.
    {"embedding_multiplier", "1", "multiplies the embeddings (Granite)"},
    {"residual_multiplier", "1", "multiplies what each layer adds (Granite)"},
    {"attention_multiplier", "1/sqrt(head_dim)", "multiplies the attention scores (Granite)"},
    {"logits_scaling", "1", "divides the logits (Granite)"},
    {"logit_scale", "1", "multiplies the logits (Cohere)"},
    {"scale_emb", "1", "multiplies the embeddings (MiniCPM)"},
    {"scale_depth", "", "multiplies what each layer adds (MiniCPM)"},
    {"dim_model_base", "hidden_size", "divides the logits (MiniCPM)"},
    {"scale_embedding", "false", "multiplies the embeddings by sqrt(hidden_size)"},
    {"lm_head_multiplier", "1", "multiplies the logits (Falcon-H1)"},
    {"key_multiplier", "1", "multiplies the keys (Falcon-H1)"},
    {"attention_in_multiplier", "1", "multiplies attention's input (Falcon-H1)"},
    {"attention_out_multiplier", "1", "multiplies attention's output (Falcon-H1)"},
    {"mlp_multipliers", "ones", "multiply the feed-forward block (Falcon-H1)"},
    {"query_pre_attn_scalar", "head_dim", "scales the attention scores (Gemma)"},
    {"scale_attn_by_inverse_layer_idx", "false", "scales the attention scores by layer (GPT-2)"},
    // Limits.
    {"attn_logit_softcapping", "false|0", "caps the attention scores (Gemma 2)"},
    {"final_logit_softcapping", "false|0", "caps the logits (Gemma 2)"},
    {"logits_soft_cap", "false|0", "caps the logits (RecurrentGemma)"},
    {"clip_qkv", "false|0", "clips q, k and v (OLMo, DBRX)"},
    {"swiglu_limit", "0", "clips the feed-forward block (gpt-oss)"},
    // Norms and the order of a layer.
    {"use_qk_norm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"qk_norm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"qk_layernorm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"use_qk_layernorm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"apply_residual_connection_post_layernorm", "false", "moves the residual connection (BLOOM)"},
    {"use_parallel_residual", "false", "runs attention and feed-forward side by side (GPT-NeoX)"},
    {"parallel_attn", "false", "runs attention and feed-forward side by side (Falcon)"},
    {"hidden_activation", "silu|swish", "names the activation (Gemma)"},
    {"activation_function", "silu|swish", "names the activation (GPT-2)"},
    // Positions.
    {"alibi", "false", "biases attention by distance (ALiBi)"},
    {"use_alibi", "false", "biases attention by distance (ALiBi)"},
    {"position_embedding_type", "rope|rotary", "names another kind of positions"},
    {"use_rope", "true", "leaves RoPE out"},
    {"no_rope_layers", "ones", "leaves RoPE out of layers (SmolLM3, Llama 4)"},
    {"no_rope_layer_interval", "0", "leaves RoPE out of layers (SmolLM3, Llama 4)"},
    {"rope_local_base_freq", "", "is another RoPE base for some layers (Gemma 3)"},
    {"local_rope_theta", "", "is another RoPE base for some layers"},
    {"rotary_pct", "1", "rotates a part of each head (GPT-NeoX)"},
    {"rope_pct", "1", "rotates a part of each head (StableLM)"},
    {"rotary_dim", "head_dim", "rotates a part of each head (GPT-J)"},
    {"rotary_emb_base", "10000", "is the RoPE base of GPT-NeoX, instead of rope_theta"},
    {"attn_temperature_tuning", "false|0", "scales queries by position (Llama 4)"},
    {"llama_4_scaling_beta", "0", "scales queries by position (Ministral 3)"},
    {"use_logn_attn", "false", "scales queries by position (Qwen 1)"},
    {"use_dynamic_ntk", "false", "stretches RoPE with the length (Qwen 1)"},
    // Kinds of attention.
    {"is_causal", "true", "lets a token see later ones"},
    {"use_bidirectional_attention", "false", "lets a token see later ones"},
    {"is_encoder_decoder", "false", "says that there is an encoder"},
    {"add_cross_attention", "false", "adds attention to another sequence"},
    {"dual_chunk_attention_config", "", "attends in chunks (Qwen 2.5 1M)"},
    {"attention_chunk_size", "0", "attends in chunks (Llama 4)"},
    {"sliding_window_pattern", "", "mixes windows and full attention (Gemma 3)"},
    {"interleaved_sliding_window", "", "mixes windows and full attention"},
    {"attention_sinks", "false|0", "adds attention sinks"},
    {"attention_sink_size", "0", "keeps the first tokens of a window"},
    {"attn_output_gate", "false", "gates attention's output (Qwen3-Next)"},
    {"headwise_attn_output_gate", "false", "gates attention's output"},
    {"elementwise_attn_output_gate", "false", "gates attention's output"},
    {"kv_lora_rank", "", "compresses keys and values (DeepSeek)"},
    {"q_lora_rank", "", "compresses queries (DeepSeek)"},
    {"v_head_dim", "head_dim", "gives values a size of their own (DeepSeek)"},
    {"num_kv_shared_layers", "0", "shares keys and values between layers (Gemma 3n)"},
    {"linear_num_value_heads", "", "adds layers of linear attention (Qwen3-Next)"},
    {"attn_config", "", "describes another kind of attention (MPT, DBRX)"},
    // Layers that are not all alike; experts.
    {"per_layer_config", "", "gives layers shapes of their own"},
    {"block_configs", "", "gives layers shapes of their own (Nemotron)"},
    {"use_moe", "false", "says that there are experts"},
    {"num_experts", "0|1|dense", "is a number of experts"},
    {"num_local_experts", "0|1|dense", "is a number of experts (Mixtral)"},
    {"n_routed_experts", "0|dense", "is a number of experts (DeepSeek)"},
    {"n_shared_experts", "0|dense", "is a number of experts (DeepSeek)"},
    {"num_shared_experts", "0|dense", "is a number of experts"},
    {"num_experts_per_tok", "0|1|dense", "is a number of experts"},
    {"moe_num_experts", "0|1|dense", "is a number of experts"},
    {"moe_intermediate_size", "dense", "is the size of experts"},
    {"moe_layers", "dense", "lists layers with experts"},
};

constexpr KeyRule kRopeKeys[] = {
    {"attn_factor", "1",
     "multiplies YaRN's temperature (its first code, where transformers has attention_factor)"},
    {"extrapolation_factor", "1", "weighs YaRN's ramp (its first code)"},
    {"llama_4_scaling_beta", "0", "scales queries by position (Ministral 3)"},
    {"short_mscale", "", "scales cos and sin (Phi-3.5-MoE)"},
    {"long_mscale", "", "scales cos and sin (Phi-3.5-MoE)"},
    {"alpha", "1", "stretches the base (HunYuan)"},
};

constexpr std::string_view kKnownRopeKeys[] = {
    "rope_type", "type", "factor", "rope_theta", "partial_rotary_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "original_max_position_embeddings", "truncate", "finetuned", "short_factor",
    "long_factor", "attention_factor", "low_freq_factor", "high_freq_factor",
    // The parts of a head that take their angles from an image's rows and columns; in text all are equal.
    "mrope_section", "mrope_interleaved"};

// Keys that one family heeds and another passes over.
struct PassedOver {
  std::string_view key, neutral, model_types, what;
};
constexpr PassedOver kPassedOver[] = {
    {"sliding_window", "", "llama minimind",
     "ignored, as in transformers: this architecture attends to all positions"},
    {"use_sliding_window", "true", "mistral", "ignored, as in transformers: sliding_window alone decides"},
    {"attention_bias", "false", "mistral minimind", "ignored, as in transformers: no such biases here"},
    {"mlp_bias", "false", "mistral qwen2 qwen3 minimind", "ignored, as in transformers: no such biases here"},
    {"auto_map", "", "llama mistral qwen2 qwen3",
     "code that lariat never runs: if it computes something else than transformers' class, so does the "
     "model"},
};

// Whether a number of the model or of the file is `value`, which JSON may hold in fewer digits.
bool near(const nlohmann::json& value, double wanted) {
  return value.is_number() && std::fabs(value.get<double>() - wanted) <= 1e-6 * std::fabs(wanted);
}

bool no_experts(const JsonFields& config, const ModelSpec& spec) {
  const nlohmann::json* use = config.find("use_moe");
  return use == nullptr ? spec.family == "MiniMindForCausalLM" : use->is_boolean() && !use->get<bool>();
}

bool is_ones(const nlohmann::json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& item) {
           return near(item, 1.0) || (item.is_boolean() && item.template get<bool>());
         });
}

bool matches(const nlohmann::json& value, std::string_view word, const JsonFields& config,
             const ModelSpec& spec) {
  const AttentionSpec& attention = spec.layers.front().attention;
  if (word == "hidden_size") return near(value, static_cast<double>(spec.hidden_size));
  if (word == "head_dim") return near(value, static_cast<double>(attention.head_dim));
  if (word == "1/sqrt(head_dim)") return near(value, static_cast<double>(attention.scale));
  if (word == "qk_norm") return value.is_boolean() && value.get<bool>() == attention.qk_norm;
  if (word == "ones") return is_ones(value);
  if (word == "dense") return no_experts(config, spec);
  if (value.is_string()) return value.get<std::string>() == word;
  if (value.is_boolean()) return word == (value.get<bool>() ? "true" : "false");
  const nlohmann::json number = nlohmann::json::parse(word, nullptr, false);
  return number.is_number() && near(value, number.get<double>());
}

bool is_neutral(const nlohmann::json& value, std::string_view neutral, const JsonFields& config,
                const ModelSpec& spec) {
  if (value.empty()) return true;  // nlohmann: null, [] and {}
  if (value.is_string() && value.get<std::string>().empty()) return true;
  for (size_t at = 0; at <= neutral.size() && !neutral.empty();) {
    const size_t end = std::min(neutral.find('|', at), neutral.size());
    if (matches(value, neutral.substr(at, end - at), config, spec)) return true;
    at = end + 1;
  }
  return false;
}

[[noreturn]] void refuse(const JsonFields& object, const KeyRule& rule) {
  std::string_view value = rule.neutral.substr(0, rule.neutral.find('|'));
  std::string line = std::string(rule.what) + ", which lariat does not do; remove the key";
  if (value == "ones") value = "a list of ones";
  if (!value.empty() && value != "dense" && value != "qk_norm")
    line += ", or set it to " + std::string(value) + ",";
  object.fail(rule.key, line + " if the model was trained without it");
}

// What the end of a tensor's name says about the checkpoint.
struct TensorRule {
  std::string_view part, what;
};
constexpr std::string_view kQuantized =
    "belongs to quantised weights, which lariat does not read; use the checkpoint in f32, f16 or bf16 that "
    "they were made from, if need be with --quantize q8 or q4";
constexpr std::string_view kLora =
    "belongs to a LoRA adapter; merge it into the model first (peft: merge_and_unload, save_pretrained)";
constexpr std::array<TensorRule, 16> kForeign{{
    {".qweight", kQuantized},
    {".qzeros", kQuantized},
    {".scales", kQuantized},
    {".g_idx", kQuantized},
    {".weight_scale", kQuantized},
    {".weight_packed", kQuantized},
    {".weight_zero_point", kQuantized},
    {".input_scale", kQuantized},
    {".absmax", kQuantized},
    {".quant_state", kQuantized},
    {".SCB", kQuantized},
    {".k_scale", kQuantized},
    {".v_scale", kQuantized},
    {"lora_", kLora},
    {".base_layer.", kLora},
    {".modules_to_save.", kLora},
}};
constexpr std::array<TensorRule, 9> kUnread{{
    {".sinks", "holds attention sinks"},
    {"expert", "belongs to experts"},
    {".mlp.gate.", "chooses between experts"},
    {"q_norm", "normalises heads of q"},
    {"k_norm", "normalises heads of k"},
    {"feedforward_layernorm", "is a norm around the feed-forward block (Gemma, OLMo 2)"},
    {"lm_head.bias", "is a bias of the logits"},
    {".bias", "is a bias"},
    {".mtp", "predicts further tokens"},
}};
constexpr std::string_view kVision[] = {"vision_tower.",           "vision_model.", "visual.",
                                        "multi_modal_projector.",  "mm_projector.", "audio_tower.",
                                        "multimodal_projector.",   "image_newline", "vision_encoder.",
                                        "vision_language_adapter."};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string named(const StoredTensor& tensor) {
  return tensor.file.string() + ": tensor '" + tensor.name.substr(0, 200) + "' ";
}

bool is_vision(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return std::any_of(std::begin(kVision), std::end(kVision),
                     [&](auto part) { return name.starts_with(part); });
}

// The layer that a name like model.layers.12.mlp.bias belongs to; -1 without one.
int64_t layer_of(std::string_view name) {
  const size_t at = name.find("layers.");
  if (at == std::string_view::npos) return -1;
  int64_t layer = -1;
  for (const char c : name.substr(at + 7)) {
    if (c < '0' || c > '9' || layer > INT32_MAX) break;
    layer = std::max<int64_t>(layer, 0) * 10 + (c - '0');
  }
  return layer;
}

std::string why_unread(const ModelSpec& spec, std::string_view name) {
  const std::string config = spec.file.string();
  if (layer_of(name) >= static_cast<int64_t>(spec.layers.size())) {
    return "is of a layer beyond \"num_hidden_layers\", " + std::to_string(spec.layers.size()) +
           "; correct that in " + config;
  }
  std::string what = "is not read";
  for (const TensorRule& rule : kUnread) {
    if (!contains(name, rule.part)) continue;
    what = std::string(rule.what) + ", which is not read";
    break;
  }
  const bool biased = name.ends_with(".bias"), llama = spec.family == "LlamaForCausalLM";
  if (biased && contains(name, "self_attn") && (llama || spec.family == "Qwen3ForCausalLM"))
    return what + "; if the model has biases there, set \"attention_bias\": true in " + config;
  if (biased && contains(name, ".mlp.") && llama)
    return what + "; if the model has biases there, set \"mlp_bias\": true in " + config;
  return what + ": the weights are not those of a " + spec.family + "; correct \"architectures\" in " +
         config + ", or take the tensor out if it is a leftover";
}

bool has_file(const fs::path& dir, const char* name) {
  std::error_code ec;
  return fs::exists(dir / name, ec);
}

std::string first_file(const fs::path& dir, std::string_view extension) {
  std::set<std::string> found;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() == extension) found.insert(it->path().filename().string());
  }
  return found.empty() ? "" : *found.begin();
}

[[noreturn]] void refuse_gguf(const fs::path& file) {
  throw Error(file.string() +
              ": a GGUF file, which llama.cpp reads; --model takes the Hugging Face folder (config.json and "
              "*.safetensors) that it was made from");
}

[[noreturn]] void refuse_adapter(const fs::path& dir) {
  const nlohmann::json json = read_json_object(dir / "adapter_config.json");
  const JsonFields fields(json, (dir / "adapter_config.json").string());
  const auto base = fields.string("base_model_name_or_path");
  throw Error(fields.file() + ": a LoRA adapter" + (base ? " of " + base->substr(0, 200) : std::string()) +
              "; merge it first, in Python: from peft import AutoPeftModelForCausalLM; "
              "AutoPeftModelForCausalLM.from_pretrained('" +
              dir.string() + "').merge_and_unload().save_pretrained('MERGED')");
}

[[noreturn]] void refuse_pickle(const fs::path& dir, const std::string& name) {
  throw Error(
      (dir / name).string() +
      ": pickled weights, which lariat does not open; convert them, in Python: from transformers import "
      "AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained('" +
      dir.string() + "').save_pretrained('CONVERTED')");
}

// The hub's cache: NAME/refs/main holds the name of a folder in NAME/snapshots.
[[noreturn]] void refuse_snapshots(const fs::path& dir) {
  std::string hash;
  std::error_code ec;
  std::ifstream(dir / "refs" / "main") >> hash;
  if (hash.empty() || !fs::exists(dir / "snapshots" / hash, ec)) {
    const fs::directory_iterator it(dir / "snapshots", ec);
    hash = !ec && it != fs::directory_iterator() ? it->path().filename().string() : "HASH";
  }
  throw Error(dir.string() + ": the folder above a snapshot; use --model " +
              (dir / "snapshots" / hash).string());
}

}  // namespace

std::span<const KeyRule> key_rules() { return kKeys; }
std::span<const KeyRule> rope_key_rules() { return kRopeKeys; }

void check_keys(const JsonFields& config, std::string_view model_type, ModelSpec& spec) {
  for (const KeyRule& rule : kKeys) {
    const nlohmann::json* value = config.find(rule.key);
    if (value != nullptr && !is_neutral(*value, rule.neutral, config, spec)) refuse(config, rule);
  }
  for (const PassedOver& rule : kPassedOver) {
    const nlohmann::json* value = config.find(rule.key);
    if (value == nullptr || !contains(rule.model_types, model_type)) continue;
    if (is_neutral(*value, rule.neutral, config, spec)) continue;
    spec.warnings.push_back(config.message(rule.key, std::string(rule.what)));
  }
}

void check_rope_keys(const JsonFields& object, std::vector<std::string>* warnings) {
  ModelSpec nothing;  // no rule of these speaks of the model
  nothing.layers.resize(1);
  for (const std::string& key : object.keys()) {
    const nlohmann::json* value = object.find(key);
    const auto rule =
        std::find_if(std::begin(kRopeKeys), std::end(kRopeKeys), [&](auto& r) { return r.key == key; });
    if (rule != std::end(kRopeKeys)) {
      if (value != nullptr && !is_neutral(*value, rule->neutral, object, nothing)) refuse(object, *rule);
    } else if (value != nullptr && warnings != nullptr && !object.holds_object(key) &&
               std::find(std::begin(kKnownRopeKeys), std::end(kKnownRopeKeys), key) ==
                   std::end(kKnownRopeKeys)) {
      warnings->push_back(object.message(key.substr(0, 60), "no such key of RoPE is known; ignored"));
    }
  }
}

void refuse_foreign_tensors(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (const TensorRule& rule : kForeign) {
      if (contains(name, rule.part)) throw Error(named(tensor) + std::string(rule.what));
    }
  }
}

void check_unread_tensors(ModelSpec& spec, const Checkpoint& checkpoint, const std::set<std::string>& read) {
  const StoredTensor *unread = nullptr, *vision = nullptr;
  int64_t count = 0, of_vision = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    // Transformers 4.31 and older stored the frequencies, which follow from the config, with each layer.
    if (read.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    if (is_vision(name)) {
      if (of_vision++ == 0) vision = &tensor;
    } else if (count++ == 0) {
      unread = &tensor;
    }
  }
  if (unread != nullptr) {
    throw Error(named(*unread) + (count > 1 ? "(and " + std::to_string(count - 1) + " more) " : "") +
                why_unread(spec, unread->name));
  }
  if (vision != nullptr) {
    spec.warnings.push_back(named(*vision) + "and " + std::to_string(of_vision - 1) +
                            " more belong to an image or audio part, which does not run; text alone does");
  }
}

void refuse_other_formats(const fs::path& path) {
  std::error_code ec;
  if (fs::is_regular_file(path, ec)) {
    char magic[4] = {};
    std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
    if (std::string_view(magic, sizeof magic) == "GGUF") refuse_gguf(path);
    return;
  }
  if (!fs::is_directory(path, ec)) return;
  if (has_file(path, "adapter_config.json")) refuse_adapter(path);
  if (!has_file(path, "config.json") && has_file(path, "snapshots")) refuse_snapshots(path);
  if (has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json")) return;
  if (const std::string gguf = first_file(path, ".gguf"); !gguf.empty()) refuse_gguf(path / gguf);
  for (const char* extension : {".bin", ".pth", ".pt"}) {
    if (const std::string name = first_file(path, extension); !name.empty()) refuse_pickle(path, name);
  }
}

}  // namespace lariat
