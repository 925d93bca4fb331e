#include <algorithm>
#include <array>

#include "kernels/error.h"
#include "models/families/gate.h"
#include "models/safetensors.h"

// The tensors of a checkpoint.
namespace lariat {
namespace {

// What the end of a tensor's name says about the checkpoint.
struct TensorRule {
  std::string_view part, what;
};
constexpr std::string_view kQuantized =
    "belongs to quantised weights, which lariat does not read; use the checkpoint in f32, f16 or bf16 that "
    "they were made from, if need be with `quantize` q8 or q4";
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

}  // namespace

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
    const bool mask = name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias");
    if (mask && spec.family == "GPTNeoXForCausalLM") continue;  // of causal attention, stored likewise
    const int64_t beyond = layer_of(name) - static_cast<int64_t>(spec.layers.size());
    if (beyond >= 0 && beyond < spec.n_unread_layers) continue;
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
    const std::string more =
        of_vision > 1 ? "and " + std::to_string(of_vision - 1) + " more belong" : "belongs";
    spec.warnings.push_back(named(*vision) + more +
                            " to an image or audio part, which does not run; text alone does");
  }
}

}  // namespace lariat
