#include "models/load/gate_tensors.h"

#include <algorithm>

#include "kernels/error.h"
#include "models/io/json_fields.h"

namespace lariat {
namespace {

struct TensorRule {
  std::string_view parts, what;
};
constexpr TensorRule kForeign[] = {
    {".qweight .qzeros .scales .g_idx .weight_scale .weight_packed .weight_zero_point .input_scale .absmax "
     ".quant_state .SCB .k_scale .v_scale _proj_blocks _proj_scales",
     "belongs to quantised weights, but config.json has no \"quantization_config\"; download the missing "
     "quantize_config.json, quant_config.json or hf_quant_config.json"},
    {"lora_ .base_layer. .modules_to_save.",
     "belongs to a LoRA adapter; merge it into the model first (peft: merge_and_unload, save_pretrained)"},
};
constexpr TensorRule kUnread[] = {
    {".sinks", "holds attention sinks"},
    {"expert", "belongs to experts"},
    {".mlp.gate.", "chooses between experts"},
    {"q_norm", "normalises heads of q"},
    {"k_norm", "normalises heads of k"},
    {"feedforward_layernorm", "is a norm around the feed-forward block (Gemma, OLMo 2)"},
    {"lm_head.bias", "is a bias of the logits"},
    {".bias", "is a bias"},
    {".mtp", "predicts further tokens"},
};
constexpr std::string_view kVision =
    "vision_tower. vision_model. visual. multi_modal_projector. mm_projector. audio_tower. "
    "multimodal_projector. image_newline vision_encoder. vision_language_adapter. vision_embed_tokens. mtp_";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

const TensorRule* find_rule(std::span<const TensorRule> rules, std::string_view name) {
  const auto rule = std::ranges::find_if(rules, [&](const TensorRule& each) {
    return std::ranges::any_of(split(each.parts, ' '), [&](auto part) { return contains(name, part); });
  });
  return rule == rules.end() ? nullptr : &*rule;
}

std::string named(const StoredTensor& tensor) {
  return tensor.file.string() + ": tensor '" + tensor.name.substr(0, 200) + "' ";
}

bool is_vision(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return std::ranges::any_of(split(kVision, ' '), [&](auto part) { return name.starts_with(part); });
}

bool is_redundant(const ModelSpec& spec, std::string_view name) {
  return std::ranges::any_of(split(spec.names.redundant, ' '), [&](auto end) { return name.ends_with(end); });
}

// Quantisers write zero biases for every linear layer.
bool is_zero_bias(const StoredTensor& tensor) {
  return tensor.name.ends_with(".bias") &&
         std::all_of(tensor.data, tensor.data + tensor.bytes, [](std::byte b) { return b == std::byte{0}; });
}

// Layer index in model.layers.12.mlp.bias; -1: none.
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
  if (spec.file.extension() == ".gguf")
    return "is not used: not a tensor of a " + spec.family + "; use another conversion of the model";
  if (layer_of(name) >= std::ssize(spec.layers)) {
    return "is of a layer beyond \"num_hidden_layers\", " + std::to_string(spec.layers.size()) +
           "; correct that in " + config;
  }
  const TensorRule* rule = find_rule(kUnread, name);
  const std::string what = rule ? std::string(rule->what) + ", and is not used" : "is not used";
  const bool of_attention = contains(name, "self_attn");
  const std::string_view key = of_attention ? "attention_bias" : "mlp_bias";
  if (name.ends_with(".bias") && (of_attention || contains(name, ".mlp.")) && has_name(spec.bias_keys, key)) {
    return what + "; if the model has biases there, set \"" + std::string(key) + "\": true in " + config;
  }
  return what + ": the weights do not match a " + spec.family + "; correct \"architectures\" in " + config +
         ", or remove the tensor if it is a leftover";
}

}  // namespace

void refuse_foreign_tensors(const Tensors& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.all()) {
    if (const TensorRule* rule = find_rule(kForeign, name))
      throw Error(named(tensor) + std::string(rule->what));
  }
}

void check_unread_tensors(ModelSpec& spec, const Tensors& checkpoint, const std::set<std::string>& read) {
  std::vector<const StoredTensor*> unread, vision;
  for (const auto& [name, tensor] : checkpoint.all()) {
    if (read.contains(name) || is_redundant(spec, name) || is_zero_bias(tensor)) continue;
    const int64_t beyond = layer_of(name) - std::ssize(spec.layers);
    if (beyond >= 0 && beyond < spec.n_unread_layers) continue;
    (is_vision(name) ? vision : unread).push_back(&tensor);
  }
  if (!unread.empty()) {
    const std::string more =
        unread.size() > 1 ? "(and " + std::to_string(unread.size() - 1) + " more) " : std::string();
    throw Error(named(*unread.front()) + more + why_unread(spec, unread.front()->name));
  }
  if (vision.empty()) return;
  const std::string more =
      vision.size() > 1 ? "and " + std::to_string(vision.size() - 1) + " more belong" : "belongs";
  spec.warnings.push_back(
      named(*vision.front()) + more +
      " to an image, audio or multi-token prediction part, not supported; only text runs");
}

}  // namespace lariat
