#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "models/families/family.h"
#include "models/positions/parse_position_method.h"
#include "models/spec/gate.h"

// Qwen 2, 2.5, 3 and the text part of 2-VL to 3-VL (transformers 5.23).
namespace lariat {
namespace {

Defaults qwen_defaults() {
  Defaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.n_kv_heads = 32;
  defaults.max_position_embeddings = 32768;
  return defaults;
}

// With use_sliding_window: sliding layers from layer_types, or all from max_window_layers on.
void read_windows(const JsonFields& config, ModelSpec& spec) {
  int64_t window = read_window(config, 4096);
  if (!config.boolean("use_sliding_window").value_or(false)) window = 0;
  const auto first = static_cast<size_t>(config.integer("max_window_layers", 0, kMaxLayers).value_or(28));
  const std::vector<bool> sliding = read_sliding_layers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool slides = sliding.empty() ? i >= first : sliding[i];
    if (slides && !sliding.empty() && window == 0) {
      config.fail("layer_types", "entry " + std::to_string(i) + " slides, against use_sliding_window or " +
                                     "sliding_window; " + "correct one of them");
    }
    spec.layers[i].attention.sliding_window = slides ? window : 0;
  }
}

// Dual chunk attention for 1M tokens, without RoPE scaling, with one more key in the window (vLLM 0.10,
// dual_chunk_flash_attn.py; docs/context-extension.md).
void read_dual_chunks(const JsonFields& config, ModelSpec& spec) {
  const char* const key = "dual_chunk_attention_config";
  if (!is_set(config.find(key))) return;
  const JsonFields dual = config.need_object(key);
  constexpr int64_t kMost = KeyEdge::kUnbounded / 8;
  const int64_t size = dual.integer("chunk_size", 2, kMost).value_or(8192);
  const int64_t local = dual.integer("local_size", 1, kMost).value_or(1024), chunk = size - local;
  if (chunk < 1) dual.fail("local_size", fmt::format("expected less than chunk_size, {}", size));
  const auto slides = [](const LayerSpec& layer) { return layer.attention.sliding_window > 0; };
  if (std::ranges::any_of(spec.layers, slides))
    config.fail("use_sliding_window", fmt::format("not supported with {}; correct one of them", key));
  if (spec.rope().type != RopeType::kDefault) {
    spec.warnings.push_back(config.message(key, "RoPE scaling is ignored, as in vLLM"));
    spec.rope() = rope_of_type(spec.rope(), RopeType::kDefault);
  }
  std::string method = fmt::format("dca/chunk={}/window={}", chunk, std::min(local + 1, chunk));
  if (const auto trained = dual.integer("original_max_position_embeddings", 0, kMaxContext).value_or(0)) {
    method += "/temperature=length";
    spec.rope().original_ctx = trained;
  }
  spec.position_method = parse_position_method(method, spec.rope().original_ctx, 0);
  const int64_t sparse = dual.integer("sparse_attention_threshold", 0, kMaxContext).value_or(32768);
  for (const char* of_sparse : {"sparse_attention_config", "sparse_attention_last_q"})
    dual.mark_read(of_sparse);
  if (dual.boolean("sparse_attention_enabled").value_or(true)) {
    spec.warnings.push_back(config.message(
        key, fmt::format("prompts of more than {} tokens use full attention, not vLLM's sparse attention",
                         sparse)));
  }
  check_unread(dual, spec, &spec.warnings);
}

ModelSpec read_with_biases(const JsonFields& config, const Defaults& defaults) {
  ModelSpec spec = read_decoder(config, defaults);
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = true;
  read_windows(config, spec);
  return spec;
}

// M-RoPE axis of each pair. mrope_section: pairs for time, height and width, in order or interleaved;
// interleaved, time takes the rest (transformers' apply_multimodal_rotary_pos_emb, apply_interleaved_mrope).
void read_axes(const JsonFields& config, const std::vector<int64_t>& missing, bool interleaved,
               ModelSpec& spec) {
  const JsonFields object = rope_object(config);
  const auto sections = object.integers("mrope_section", 0, kMaxHeadDim).value_or(missing);
  const int64_t pairs = spec.rope().rotary_dim / 2;
  if (sections.size() != 3) object.fail("mrope_section", "expected three numbers of pairs");
  if (sections[0] + sections[1] + sections[2] != pairs) return;  // a text-only model
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const auto axis = static_cast<size_t>(pair % 3);
    const bool of_axis = pair < 3 * sections[axis];
    const bool before_width = pair < sections[0] + sections[1];
    const size_t in_order = pair < sections[0] ? 0 : before_width ? 1 : 2;
    spec.mrope_axes.push_back(static_cast<uint8_t>(interleaved ? (of_axis ? axis : 0) : in_order));
  }
}

ModelSpec read_with_head_norms(const JsonFields& config, const Defaults& defaults) {
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kPerHead;
  return spec;
}

// Experts in every decoder_sparse_step-th layer except mlp_only_layers. missing: defaults.
void read_experts(const JsonFields& config, const ExpertsSpec& missing, ModelSpec& spec) {
  ExpertsSpec experts;
  const int64_t n = config.integer("num_experts", 1, kMaxExperts).value_or(missing.n);
  experts.n = config.integer("num_local_experts", 1, kMaxExperts).value_or(n);
  experts.intermediate_size =
      config.integer("moe_intermediate_size", 1, kMaxIntermediate).value_or(missing.intermediate_size);
  experts.router.n_chosen =
      config.integer("num_experts_per_tok", 1, experts.n).value_or(missing.router.n_chosen);
  experts.router.normalise = config.boolean("norm_topk_prob").value_or(false) || missing.router.normalise;
  const auto step = static_cast<size_t>(config.integer("decoder_sparse_step", 1, kMaxLayers).value_or(1));
  std::vector<bool> dense(spec.layers.size());
  for (const int64_t layer :
       config.integers("mlp_only_layers", 0, kMaxLayers).value_or(std::vector<int64_t>{})) {
    if (layer < std::ssize(dense)) dense[static_cast<size_t>(layer)] = true;
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if ((i + 1) % step == 0 && !dense[i]) use_experts(experts, 0, spec.layers[i]);
  }
}

}  // namespace

ModelSpec read_qwen2(const JsonFields& config) {
  ModelSpec spec = read_with_biases(config, qwen_defaults());
  read_dual_chunks(config, spec);
  return spec;
}

ModelSpec read_qwen2_vl(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.keys.head_dim = "";
  defaults.vocab_size = 152064;
  defaults.rope.theta = 1e6;
  defaults.norm_eps = 1e-5;
  ModelSpec spec = read_with_biases(config, defaults);
  read_axes(config, {16, 24, 24}, false, spec);
  return spec;
}

ModelSpec read_qwen3(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.head_dim = 128;
  ModelSpec spec = read_with_head_norms(config, defaults);
  read_windows(config, spec);
  read_dual_chunks(config, spec);
  return spec;
}

// models/qwen3_moe
ModelSpec read_qwen3_moe(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.n_layers = 24;
  defaults.n_kv_heads = 4;
  ModelSpec spec = read_with_head_norms(config, defaults);
  read_experts(config, {.n = 128, .intermediate_size = 768, .router = {.n_chosen = 8}}, spec);
  // One window for all layers, unlike Qwen 3.
  const int64_t window = read_window(config, 4096);
  const bool slides = config.boolean("use_sliding_window").value_or(false);
  for (LayerSpec& layer : spec.layers) layer.attention.sliding_window = slides ? window : 0;
  check_sliding_layers(config, spec);
  read_dual_chunks(config, spec);
  return spec;
}

void adapt_qwen3_moe(nlohmann::json& config) { config["norm_topk_prob"] = true; }

// models/qwen2_moe: a router weighs the shared expert.
ModelSpec read_qwen2_moe(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.n_layers = 24;
  defaults.n_heads = defaults.n_kv_heads = 16;
  ModelSpec spec = read_with_biases(config, defaults);
  // transformers 5.24 would slide in every other layer.
  if (config.boolean("use_sliding_window").value_or(false) && !config.has("layer_types"))
    config.fail("use_sliding_window", "programs disagree which layers slide; add layer_types");
  read_experts(config, {.n = 60, .intermediate_size = 1408, .router = {.n_chosen = 4}}, spec);
  const int64_t shared =
      config.integer("shared_expert_intermediate_size", 1, kMaxIntermediate).value_or(5632);
  const bool bias = config.boolean("qkv_bias").value_or(true);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = bias;
    if (layer.feed_forward.experts.n == 0) continue;
    layer.feed_forward.experts.shared_router = true;
    layer.feed_forward.intermediate_size = shared;
  }
  spec.names.shared_gate = "mlp.shared_expert.gate_proj";
  spec.names.shared_up = "mlp.shared_expert.up_proj";
  spec.names.shared_down = "mlp.shared_expert.down_proj";
  return spec;
}

void adapt_qwen2_moe(nlohmann::json& config) {
  config["shared_expert_intermediate_size"] = config["shared_intermediate_size"];
  config.erase("shared_intermediate_size");
}

ModelSpec read_qwen3_vl(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 128000;
  defaults.rope.theta = 5e5;
  ModelSpec spec = read_with_head_norms(config, defaults);
  read_axes(config, {24, 20, 20}, true, spec);
  return spec;
}

// models/qwen3_vl_moe: expert weights always sum to one.
ModelSpec read_qwen3_vl_moe(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.n_layers = 24;
  defaults.n_heads = defaults.n_kv_heads = 16;
  defaults.max_position_embeddings = 128000;
  defaults.rope.theta = 5e5;
  ModelSpec spec = read_with_head_norms(config, defaults);
  read_axes(config, {24, 20, 20}, true, spec);
  read_experts(config, {.n = 60, .intermediate_size = 1408, .router = {.n_chosen = 4, .normalise = true}},
               spec);
  return spec;
}

// Sections are the published ones; the second key is about images.
void adapt_qwen3_vl_moe(nlohmann::json& config) {
  for (const char* key : {"rope.dimension_sections", "n_deepstack_layers"})
    config.erase(std::string("qwen3vlmoe.") + key);
}

}  // namespace lariat
