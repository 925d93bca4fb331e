#include "models/families/family.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernels/counted.h"
#include "models/spec/gate.h"
#include "models/spec/rope_config.h"

namespace lariat {
namespace {

constexpr Family kFamilies[] = {
#define LARIAT_FAMILY(architecture, type, reader, tokenizer, ...) \
  {.name = #architecture, .model_type = #type, .read = reader, __VA_ARGS__},
#include "models/families/families.def"
};

// Returns the first name in the file, else the first of all.
std::string_view present_key(const JsonFields& config, std::string_view names) {
  const auto all = split(names, ' ');
  const auto there = std::ranges::find_if(all, [&](std::string_view name) { return config.has(name); });
  return there == all.end() ? all.front() : *there;
}

Activation read_activation(const JsonFields& config, const Defaults& d) {
  const std::string_view key = d.keys.activation;
  const auto given = key.empty() ? std::nullopt : config.string(key);
  if (const auto activation = find_activation(given.value_or(d.activation))) return *activation;
  config.fail(key,
              "only silu, also called swish, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and relu2 are "
              "supported; use another model");
}

int64_t read_size(const JsonFields& config, std::string_view names, int64_t hi, int64_t missing) {
  if (names.empty()) return missing;
  return config.integer(present_key(config, names), 1, hi).value_or(missing);
}

int64_t read_head_dim(const JsonFields& config, const Defaults& d, int64_t hidden_size, int64_t n_heads) {
  const std::string_view key = d.keys.head_dim;
  const bool given = !key.empty() && config.has(key);
  if (d.head_dim != 0 && !given && !key.empty() && config.present(key))
    config.fail(key, "expected an integer, as transformers has no default for null here");
  const std::string_view heads = present_key(config, d.keys.n_heads);
  if (!given && d.head_dim == 0 && hidden_size % n_heads != 0) {
    config.fail(heads, std::to_string(n_heads) + " heads do not divide hidden_size " +
                           std::to_string(hidden_size) + "; set head_dim");
  }
  const int64_t missing = d.head_dim != 0 ? d.head_dim : hidden_size / n_heads;
  const int64_t head_dim = given ? *config.integer(key, 2, kMaxHeadDim) : missing;
  if (head_dim % 2 != 0 || head_dim < 2 || head_dim > kMaxHeadDim) {
    config.fail(key.empty() ? heads : key, "the size of a head is " + std::to_string(head_dim) +
                                               "; expected an even size from 2 to " +
                                               std::to_string(kMaxHeadDim));
  }
  return head_dim;
}

AttentionSpec read_attention(const JsonFields& config, const Defaults& d, int64_t hidden_size) {
  AttentionSpec a;
  a.n_heads = read_size(config, d.keys.n_heads, kMaxHeads, d.n_heads);
  const std::string_view key = d.keys.n_kv_heads;
  // null means n_heads even where a missing key does not (Mistral, Qwen, MiniMind: __post_init__).
  const bool as_heads = d.n_kv_heads == 0 || config.present(key);
  a.n_kv_heads = read_size(config, key, kMaxHeads, as_heads ? a.n_heads : d.n_kv_heads);
  if (a.n_heads % a.n_kv_heads != 0) {
    config.fail(key, std::to_string(a.n_kv_heads) + " key heads do not divide " + std::to_string(a.n_heads) +
                         " attention heads; correct one of the two numbers");
  }
  a.head_dim = read_head_dim(config, d, hidden_size, a.n_heads);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  return a;
}

DType read_dtype(const JsonFields& config) {
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";  // "if both are provided, keep dtype"
  const std::string name = config.string(key).value_or("float32");
  if (name == "float32" || name == "auto") return DType::kF32;  // auto: the tensors' own dtypes
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  // Some quantised checkpoints name the weights' dtype; their other tensors are mostly bf16.
  if (name == "float8_e4m3fn" && config.has("quantization_config")) return DType::kBF16;
  config.fail(key, "expected float32, float16 or bfloat16");
}

// Ignores invalid ids with a warning: many files write -1 for none, and larger ids never occur.
std::vector<int32_t> read_ids(const JsonFields& config, const char* key, ModelSpec& spec) {
  std::vector<int32_t> ids;
  bool ignored = false;
  for (const int64_t id : config.integers(key, INT32_MIN, INT32_MAX).value_or(std::vector<int64_t>{})) {
    const bool known = id >= 0 && id < spec.vocab_size;
    ignored |= !known;
    if (known) ids.push_back(static_cast<int32_t>(id));
  }
  if (ignored) {
    spec.warnings.push_back(config.message(
        key, "ids outside the vocabulary of " + std::to_string(spec.vocab_size) + " are ignored"));
  }
  return ids;
}

void read_tokens(const JsonFields& config, const Defaults& d, ModelSpec& spec) {
  const auto in_vocabulary = [&](std::optional<int64_t> id) { return id && *id < spec.vocab_size; };
  if (config.integer("bos_token_id", INT32_MIN, INT32_MAX)) {
    const std::vector<int32_t> ids = read_ids(config, "bos_token_id", spec);
    if (!ids.empty()) spec.bos_token_id = ids.front();
  } else if (!config.present("bos_token_id") && in_vocabulary(d.bos_token_id)) {
    spec.bos_token_id = static_cast<int32_t>(*d.bos_token_id);
  }
  add_eos_tokens(config, spec);
  if (!config.present("eos_token_id") && in_vocabulary(d.eos_token_id))
    spec.eos_token_ids.push_back(static_cast<int32_t>(*d.eos_token_id));
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

ModelSpec read_decoder(const JsonFields& config, const Defaults& d) {
  ModelSpec spec;
  spec.vocab_size = read_size(config, d.keys.vocab_size, kMaxVocab, d.vocab_size);
  spec.hidden_size = read_size(config, d.keys.hidden_size, kMaxHidden, d.hidden_size);
  LayerSpec layer;
  layer.feed_forward.activation = read_activation(config, d);
  layer.feed_forward.intermediate_size =
      read_size(config, d.keys.intermediate_size, kMaxIntermediate,
                d.intermediate_size > 0 ? d.intermediate_size : 4 * spec.hidden_size);
  const int64_t n_layers = read_size(config, d.keys.n_layers, kMaxLayers, d.n_layers);
  layer.attention = read_attention(config, d, spec.hidden_size);
  spec.layers.assign(static_cast<size_t>(n_layers), layer);
  spec.max_position_embeddings =
      read_size(config, d.keys.max_position_embeddings, kMaxContext, d.max_position_embeddings);
  spec.norm_eps = static_cast<float>(
      config.number(present_key(config, d.keys.norm_eps), 1e-30, 1.0).value_or(d.norm_eps));
  spec.tie_word_embeddings = config.boolean("tie_word_embeddings").value_or(d.tie_word_embeddings);
  spec.dtype = read_dtype(config);
  read_tokens(config, d, spec);
  RopeDefaults rope = d.rope;
  rope.head_dim = layer.attention.head_dim;
  rope.max_position_embeddings = spec.max_position_embeddings;
  rope.warnings = &spec.warnings;
  if (!d.has_rope) {
    static const nlohmann::json kNothing = nlohmann::json::object();
    spec.rope() = read_rope(JsonFields(kNothing, config.file()), rope);
  } else if (d.local_rope_theta) {
    spec.ropes = read_layered_rope(config, rope, *d.local_rope_theta);
  } else {
    spec.rope() = read_rope(config, rope);
  }
  return spec;
}

void use_alibi(double bias_max, ModelSpec& spec) {
  const auto n_heads = static_cast<uint64_t>(spec.layers.front().attention.n_heads);
  const auto n = static_cast<double>(std::bit_floor(n_heads));
  for (uint64_t h = 0; h < n_heads; ++h) {
    const auto head = static_cast<double>(h);
    const double i = head < n ? head + 1 : head - n + 0.5;
    spec.alibi_slopes.push_back(static_cast<float>(std::exp2(-bias_max * i / n)));
  }
  for (LayerSpec& layer : spec.layers) layer.attention.rope = -1;
}

void check_experts(const JsonFields& config, const ModelSpec& spec) {
  int64_t matrices = 0;
  for (const LayerSpec& layer : spec.layers) {
    const ExpertsSpec& experts = layer.feed_forward.experts;
    matrices += experts.n + (layer.attention.latent ? layer.attention.n_heads : 0);
    if (std::max(experts.n * experts.intermediate_size, layer.feed_forward.intermediate_size) >
        kMaxIntermediate) {
      config.fail("moe_intermediate_size", "a layer's experts together are wider than " +
                                               std::to_string(kMaxIntermediate) + "; use another model");
    }
  }
  if (matrices > kMaxMatrices) {
    config.fail("num_hidden_layers", std::to_string(matrices) +
                                         " experts and heads in all layers, more than " +
                                         std::to_string(kMaxMatrices) + "; use another model");
  }
}

void use_gpt2_names(TensorNames& names) {
  names.root = "transformer.";
  names.embed = "wte";
  names.norm = "ln_f";
  names.layer = "h.{}.";
  names.attention_norm = "ln_1";
  names.ffn_norm = "ln_2";
}

void use_experts(const ExpertsSpec& experts, int64_t n_shared, LayerSpec& layer) {
  layer.feed_forward.experts = experts;
  layer.feed_forward.intermediate_size = n_shared * experts.intermediate_size;
}

void add_eos_tokens(const JsonFields& config, ModelSpec& spec) {
  for (const int32_t token : read_ids(config, "eos_token_id", spec)) {
    if (std::find(spec.eos_token_ids.begin(), spec.eos_token_ids.end(), token) == spec.eos_token_ids.end())
      spec.eos_token_ids.push_back(token);
  }
}

int64_t read_window(const JsonFields& config, int64_t missing) {
  const auto window = config.integer("sliding_window", 1, kMaxContext);
  return window.value_or(config.present("sliding_window") ? 0 : missing);
}

std::vector<bool> read_sliding_layers(const JsonFields& config, size_t n_layers) {
  const auto types = config.strings("layer_types");
  if (!types) return {};
  if (types->size() != n_layers)
    config.fail("layer_types", "expected one entry per layer, " + counted(n_layers, "entry", "entries"));
  std::vector<bool> sliding;
  for (const std::string& type : *types) {
    sliding.push_back(type == "sliding_attention");
    if (!sliding.back() && type != "full_attention" && type != "attention")
      config.fail("layer_types", "\"" + type + "\" is unknown; expected full_attention or sliding_attention");
  }
  return sliding;
}

void read_one_window(const JsonFields& config, int64_t missing, ModelSpec& spec) {
  const int64_t window = read_window(config, missing);
  for (LayerSpec& layer : spec.layers) layer.attention.sliding_window = window;
  check_sliding_layers(config, spec);
}

void read_mixed_windows(const JsonFields& config, int64_t window, int64_t every, ModelSpec& spec) {
  const std::vector<bool> sliding = read_sliding_layers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    const bool slides = sliding.empty() ? static_cast<int64_t>(i + 1) % every != 0 : sliding[i];
    attention.sliding_window = slides ? window : 0;
    if (slides && spec.ropes.size() > 1) attention.rope = 1;
  }
}

void read_biases(const JsonFields& config, bool has_mlp_bias, ModelSpec& spec) {
  const bool attention = config.boolean("attention_bias").value_or(false);
  const bool mlp = has_mlp_bias && config.boolean("mlp_bias").value_or(false);
  spec.bias_keys = has_mlp_bias ? "attention_bias mlp_bias" : "attention_bias";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = attention;
    layer.feed_forward.bias = mlp;
  }
}

void check_sliding_layers(const JsonFields& config, const ModelSpec& spec) {
  const std::vector<bool> sliding = read_sliding_layers(config, spec.layers.size());
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (sliding[i] == (spec.layers[i].attention.sliding_window != 0)) continue;
    config.fail("layer_types", "all layers of this architecture have one kind of attention, but entry " +
                                   std::to_string(i) + " differs; correct the entry");
  }
}

}  // namespace lariat
