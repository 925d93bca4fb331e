#include "models/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/error.h"
#include "models/json_fields.h"
#include "models/json_file.h"
#include "models/rope_config.h"

namespace lariat {
namespace {

// Bounds of what is accepted. The largest product of three, layers * hidden * vocab, is below 2^58, so that
// sizes made of them cannot overflow.
constexpr int64_t kMaxLayers = 10000, kMaxHidden = 1 << 20, kMaxIntermediate = 1 << 24, kMaxVocab = 1 << 24;
constexpr int64_t kMaxHeads = 1 << 16, kMaxHeadDim = 1024, kMaxContext = INT32_MAX;

// What a key means when it is missing.
struct Defaults {
  Architecture architecture;
  std::string_view name, model_type;
  int64_t vocab, hidden, intermediate, layers, heads;
  int64_t kv_heads;  // 0: as many as heads
  int64_t head_dim;  // 0: hidden / heads
  int64_t max_positions;
  bool tie;
  int64_t bos, eos;        // -1: none
  int64_t sliding_window;  // 0: none
  double theta;
};

// Llama, Mistral, Qwen2, Qwen3: transformers 5.23, models/*/configuration_*.py, and default_theta of
// modeling_rope_utils.py. MiniMind: model/model_minimind.py, MiniMindConfig (its intermediate size is
// computed). rms_norm_eps is 1e-6 and hidden_act silu in all of them.
constexpr std::array<Defaults, 5> kArchitectures{{
    {Architecture::kLlama, "LlamaForCausalLM", "llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048, false, 1, 2,
     0, 1e4},
    {Architecture::kMistral, "MistralForCausalLM", "mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, false,
     1, 2, 4096, 1e4},
    {Architecture::kQwen2, "Qwen2ForCausalLM", "qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768, false, -1,
     -1, 4096, 1e4},
    {Architecture::kQwen3, "Qwen3ForCausalLM", "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, false,
     -1, -1, 4096, 1e4},
    {Architecture::kMiniMind, "MiniMindForCausalLM", "minimind", 6400, 768, 0, 8, 8, 4, 0, 32768, true, 1, 2,
     0, 1e6},
}};

const Defaults& find_architecture(const JsonFields& json) {
  std::string known;
  for (const Defaults& d : kArchitectures) known += (known.empty() ? "" : ", ") + std::string(d.name);
  if (const auto names = json.strings("architectures"); names && !names->empty()) {
    for (const Defaults& d : kArchitectures) {
      if (names->front() == d.name) return d;
    }
    json.fail("architectures", "known architectures: " + known);
  }
  const auto type = json.string("model_type");
  for (const Defaults& d : kArchitectures) {
    if (type == d.model_type) return d;
  }
  json.fail(type ? "model_type" : "architectures", "known architectures: " + known);
}

// Things that would be computed wrongly, not merely differently, if they were passed over.
void refuse_unsupported(const JsonFields& json) {
  if (json.has("quantization_config"))
    json.fail("quantization_config", "quantized checkpoints are not supported; use one in f32, f16 or bf16");
  if (json.string("hidden_act").value_or("silu") != "silu") json.fail("hidden_act", "only silu is supported");
  if (json.boolean("use_moe").value_or(false))
    json.fail("use_moe", "mixture-of-experts models are not supported");
}

void read_shape(const JsonFields& json, const Defaults& d, ModelSpec& c) {
  c.vocab_size = json.integer("vocab_size", 1, kMaxVocab).value_or(d.vocab);
  c.hidden_size = json.integer("hidden_size", 1, kMaxHidden).value_or(d.hidden);
  const int64_t intermediate =
      d.architecture == Architecture::kMiniMind
          ? static_cast<int64_t>(std::ceil(static_cast<double>(c.hidden_size) * std::numbers::pi / 64)) * 64
          : d.intermediate;
  c.intermediate_size = json.integer("intermediate_size", 1, kMaxIntermediate).value_or(intermediate);
  c.n_layers = json.integer("num_hidden_layers", 1, kMaxLayers).value_or(d.layers);
  c.n_heads = json.integer("num_attention_heads", 1, kMaxHeads).value_or(d.heads);
  // A null is "as many as heads" even where a missing key is not (Mistral, Qwen, MiniMind: __post_init__).
  const bool as_heads = d.kv_heads == 0 || json.present("num_key_value_heads");
  c.n_kv_heads =
      json.integer("num_key_value_heads", 1, kMaxHeads).value_or(as_heads ? c.n_heads : d.kv_heads);
  if (c.n_heads % c.n_kv_heads != 0) {
    json.fail("num_key_value_heads", std::to_string(c.n_kv_heads) + " key heads do not divide " +
                                         std::to_string(c.n_heads) + " attention heads");
  }
  if (!json.has("head_dim") && d.head_dim == 0 && c.hidden_size % c.n_heads != 0) {
    json.fail("num_attention_heads", std::to_string(c.n_heads) + " heads do not divide hidden_size " +
                                         std::to_string(c.hidden_size) + ", and there is no head_dim");
  }
  c.head_dim = json.integer("head_dim", 2, kMaxHeadDim)
                   .value_or(d.head_dim != 0 ? d.head_dim : c.hidden_size / c.n_heads);
  if (c.head_dim % 2 != 0 || c.head_dim < 2 || c.head_dim > kMaxHeadDim) {
    json.fail("head_dim", "the size of a head, " + std::to_string(c.head_dim) +
                              ", must be even and from 2 to " + std::to_string(kMaxHeadDim));
  }
  c.max_position_embeddings =
      json.integer("max_position_embeddings", 1, kMaxContext).value_or(d.max_positions);
  c.rms_norm_eps = static_cast<float>(json.number("rms_norm_eps", 1e-30, 1.0).value_or(1e-6));
  c.tie_word_embeddings = json.boolean("tie_word_embeddings").value_or(d.tie);
}

// The layers themselves: models/*/modeling_*.py. A Qwen2 always has its q, k and v biases, a Mistral none.
void read_layers(const JsonFields& json, ModelSpec& c) {
  const bool attention_bias = json.boolean("attention_bias").value_or(false);
  const bool mlp_bias = json.boolean("mlp_bias").value_or(false);
  switch (c.architecture) {
    case Architecture::kLlama:
      c.qkv_bias = c.o_bias = attention_bias;
      c.mlp_bias = mlp_bias;
      break;
    case Architecture::kMistral:
      break;
    case Architecture::kQwen2:
      c.qkv_bias = true;
      break;
    case Architecture::kQwen3:
      c.qkv_bias = c.o_bias = attention_bias;
      c.qk_norm = true;
      break;
    case Architecture::kMiniMind:
      c.qk_norm = true;
      break;
  }
}

// The window of every layer, 0 for full attention. Mistral: one for all. Qwen: layer_types, or the layers
// from max_window_layers on; only with use_sliding_window.
void read_windows(const JsonFields& json, const Defaults& d, ModelSpec& c) {
  const bool qwen = c.architecture == Architecture::kQwen2 || c.architecture == Architecture::kQwen3;
  int64_t window = 0;
  if (d.sliding_window != 0) {
    window = json.integer("sliding_window", 1, kMaxContext)
                 .value_or(json.present("sliding_window") ? 0 : d.sliding_window);
  }
  int64_t first = 0;
  if (qwen) {
    if (!json.boolean("use_sliding_window").value_or(false)) window = 0;
    first = json.integer("max_window_layers", 0, kMaxLayers).value_or(28);
  }
  c.sliding_window.assign(static_cast<size_t>(c.n_layers), 0);
  for (int64_t i = first; i < c.n_layers; ++i) c.sliding_window[static_cast<size_t>(i)] = window;

  const auto types = json.strings("layer_types");
  if (!types) return;
  if (types->size() != c.sliding_window.size())
    json.fail("layer_types", "expected one entry for each of " + std::to_string(c.n_layers) + " layers");
  for (size_t i = 0; i < types->size(); ++i) {
    const std::string& type = (*types)[i];
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention" && type != "attention")
      json.fail("layer_types", "\"" + type + "\" is unknown; known: full_attention, sliding_attention");
    if (qwen) {
      c.sliding_window[i] = sliding ? window : 0;
    } else if (sliding != (window != 0)) {
      // transformers ignores layer_types here and warns; the author of such a file meant another model.
      json.fail("layer_types", std::string(d.name) + " has one kind of attention, and entry " +
                                   std::to_string(i) + " is of the other");
    }
  }
}

void read_dtype(const JsonFields& json, ModelSpec& c) {
  const char* key = json.has("dtype") ? "dtype" : "torch_dtype";  // "if both are provided, keep dtype"
  const std::string name = json.string(key).value_or("float32");
  if (name == "float32") {
    c.dtype = DType::kF32;
  } else if (name == "float16") {
    c.dtype = DType::kF16;
  } else if (name == "bfloat16") {
    c.dtype = DType::kBF16;
  } else {
    json.fail(key, "known: float32, float16, bfloat16");
  }
}

void add_eos(const JsonFields& json, ModelSpec& c) {
  for (const int64_t id :
       json.integers("eos_token_id", 0, c.vocab_size - 1).value_or(std::vector<int64_t>{})) {
    const auto token = static_cast<int32_t>(id);
    if (std::find(c.eos_token_ids.begin(), c.eos_token_ids.end(), token) == c.eos_token_ids.end())
      c.eos_token_ids.push_back(token);
  }
}

void read_tokens(const JsonFields& json, const Defaults& d, ModelSpec& c) {
  if (const auto bos = json.integer("bos_token_id", 0, c.vocab_size - 1)) {
    c.bos_token_id = static_cast<int32_t>(*bos);
  } else if (!json.present("bos_token_id") && d.bos >= 0 && d.bos < c.vocab_size) {
    c.bos_token_id = static_cast<int32_t>(d.bos);
  }
  add_eos(json, c);
  if (!json.present("eos_token_id") && d.eos >= 0 && d.eos < c.vocab_size)
    c.eos_token_ids.push_back(static_cast<int32_t>(d.eos));
}

RopeContext rope_context(const Defaults& d, const ModelSpec& c) {
  RopeContext context;
  context.head_dim = c.head_dim;
  context.max_position_embeddings = c.max_position_embeddings;
  context.theta = d.theta;
  return context;
}

// MiniMindConfig overwrites rope_scaling: with inference_rope_scaling it is the object below, else nothing;
// precompute_freqs_cis then scales only when max_position_embeddings exceeds 2048. A file that also holds
// another scaling says two things.
RopeScaling read_minimind_rope(const JsonFields& json, const RopeContext& context) {
  const RopeScaling written = read_rope(json, context);
  RopeScaling meant = rope_of_type(written, RopeType::kDefault);
  meant.original_ctx = meant.max_position_embeddings;
  if (json.boolean("inference_rope_scaling").value_or(false) && meant.max_position_embeddings > 2048) {
    meant.type = RopeType::kYarn;
    meant.factor = 16.0;
    meant.original_ctx = 2048;
    meant.attention_factor = 1.0;
  }
  if (written.type != RopeType::kDefault && written != meant) {
    json.fail(json.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
              "MiniMind takes its scaling from inference_rope_scaling alone; remove one (or use "
              "--rope-config)");
  }
  return meant;
}

void read_generation_config(const std::filesystem::path& file, ModelSpec& c) {
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) return;
  const nlohmann::json json = read_json_object(file);
  add_eos(JsonFields(json, file.string()), c);
}

}  // namespace

std::string_view name_of(Architecture architecture) {
  for (const Defaults& d : kArchitectures) {
    if (d.architecture == architecture) return d.name;
  }
  return "?";
}

ModelSpec parse_config(std::string_view text, const std::filesystem::path& file) {
  const nlohmann::json parsed = parse_json_object(text, file.string());
  const JsonFields json(parsed, file.string());
  const Defaults& d = find_architecture(json);
  refuse_unsupported(json);

  ModelSpec c;
  c.file = file;
  c.architecture = d.architecture;
  read_shape(json, d, c);
  read_layers(json, c);
  read_windows(json, d, c);
  read_dtype(json, c);
  read_tokens(json, d, c);
  c.rope = d.architecture == Architecture::kMiniMind ? read_minimind_rope(json, rope_context(d, c))
                                                     : read_rope(json, rope_context(d, c));
  return c;
}

ModelSpec load_config(const std::filesystem::path& dir) {
  std::error_code ec;
  const std::filesystem::path file = std::filesystem::is_directory(dir, ec) ? dir / "config.json" : dir;
  ModelSpec c = parse_config(read_file(file, kMaxConfigBytes), file);
  if (file.filename() == "config.json")
    read_generation_config(file.parent_path() / "generation_config.json", c);
  return c;
}

}  // namespace lariat
