#include <algorithm>
#include <array>
#include <fstream>

#include "kernels/error.h"
#include "models/families/gate.h"
#include "models/safetensors.h"

// The tensors of a checkpoint and the files of its folder.
namespace lariat {
namespace {

namespace fs = std::filesystem;

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

// Architectures that transformers has no class of, so that it cannot convert them.
[[noreturn]] void refuse_state_dict(const fs::path& dir, const std::string& name,
                                    const std::string& extension) {
  throw Error(
      (dir / name).string() +
      ": pickled weights, which lariat does not open; convert them, in Python: import glob, torch; from "
      "safetensors.torch import save_file; save_file({k: v.clone() for f in glob.glob('" +
      (dir / ("*" + extension)).string() +
      "') for k, v in torch.load(f, map_location='cpu', weights_only=True).items()}, '" +
      (dir / "model.safetensors").string() + "')");
}

bool is_foreign_to_transformers(const fs::path& dir) {
  if (!has_file(dir, "config.json")) return false;
  const nlohmann::json json = read_json_object(dir / "config.json");
  const auto type = json.find("model_type");
  constexpr std::string_view kTypes[] = {"minimind", "internlm", "internlm2", "baichuan"};
  return type != json.end() && type->is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), type->get<std::string>()) != std::end(kTypes);
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
    const std::string name = first_file(path, extension);
    if (name.empty()) continue;
    if (is_foreign_to_transformers(path)) refuse_state_dict(path, name, extension);
    refuse_pickle(path, name);
  }
}

}  // namespace lariat
