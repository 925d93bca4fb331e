#include "models/quantization/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "kernels/error.h"
#include "models/families/family.h"
#include "models/quantization/quantized.h"

namespace lariat {
namespace {

struct Method {
  std::string_view name;
  void (*read)(const Quantized& quantized);
  std::string_view keys{};   // keys only in this method's settings
  const char* file = "";     // holds the settings where config.json has none
  std::string_view parts{};  // endings of its tensors, apart from those of other rows
};
constexpr Method kMethods[] = {
    {"fp8", read_fp8, "", "", ".weight_scale .weight_scale_inv .qscale_weight .scale_weight"},
    {"fbgemm_fp8", read_fp8},
    {"compressed-tensors", read_compressed_tensors, "", "",
     ".weight_packed .weight_shape .weight_zero_point .weight_g_idx .compressed .bitmask "
     ".weight_global_scale"},
    {"gptq", read_gptq, "desc_act", "quantize_config.json", ".qweight .qzeros .g_idx"},
    {"awq", read_awq, "w_bit", "quant_config.json"},
    {"bitsandbytes", read_bitsandbytes, "load_in_4bit load_in_8bit", "",
     ".SCB .weight_format .absmax .quant_map"},
    {"mlx", read_mlx, "", "", ".scales .biases"},
    {"mxfp4", read_mxfp4},
    {"modelopt", read_modelopt, "quant_algo", "hf_quant_config.json", ".weight_scale_2"}};

const Method* find_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &Method::name);
  return found == std::end(kMethods) ? nullptr : &*found;
}

std::string unnamed_method(const JsonFields& object) {
  for (const Method& method : kMethods) {
    for (const std::string_view key : split(method.keys, ' ')) {
      if (!key.empty() && object.has(std::string(key).c_str())) return std::string(method.name);
    }
  }
  return "mlx";
}

// nullopt: no weight is quantised. MLX writes "quantization", other methods "quantization_config", with or
// without a name.
std::optional<std::pair<JsonFields, std::string>> settings(const JsonFields& config) {
  std::optional<std::pair<JsonFields, std::string>> found;
  for (const char* key : {"quantization_config", "quantization"}) {
    const auto object = config.object(key);
    if (found || !object || object->keys().empty()) continue;
    const auto name = object->string("quant_method");
    found.emplace(*object, name ? *name : unnamed_method(*object));
  }
  return found;
}

// Scales of inputs, outputs or cached keys and values, which lariat does not quantise.
constexpr std::string_view kPassedOver[] = {".input_scale",  ".input_zero_point",  ".activation_scale",
                                            ".output_scale", ".output_zero_point", ".k_scale",
                                            ".v_scale",      ".q_scale",           ".kv_scale",
                                            ".k_zero_point", ".v_zero_point"};

// The same in the method's settings.
constexpr const char* kIdleKeys[] = {"input_activations", "output_activations",  "kv_cache_scheme",
                                     "activation_scheme", "activation_scale_ub", "kv_cache_quant_algo"};

void mark_activations_read(const Quantized& quantized) {
  std::set<std::string> keys;
  const auto look = [&](const JsonFields& object) {
    for (const char* key : kIdleKeys) {
      if (is_set(object.find(key))) keys.insert(key);
    }
  };
  look(quantized.config);
  const auto groups = quantized.config.object("config_groups");
  for (const std::string& name : groups ? groups->keys() : std::vector<std::string>()) {
    if (groups->holds_object(name)) look(*groups->object(name));
  }
  if (!keys.empty()) {
    quantized.warnings.push_back(
        fmt::format("{}: quantization_config: {} not applied; activations and cached keys and values are "
                    "not quantised",
                    quantized.config.file(), fmt::join(keys, ", ")));
  }
  size_t count = 0;
  std::string first;
  for (const std::string_view end : kPassedOver) {
    for (const std::string& module : quantized.modules(end)) {
      const auto tensor = quantized.take(module + std::string(end), "");
      if (count++ == 0) first = fmt::format("{}: tensor '{:.200}'", tensor->file.string(), tensor->name);
    }
  }
  if (count == 0) return;
  const std::string more = count > 1 ? fmt::format(" and {} more are", count - 1) : " is";
  quantized.warnings.push_back(first + more +
                               " for quantised activations or cached keys and values; ignored");
}

bool is_part(std::string_view tensor) {
  return std::ranges::any_of(kMethods, [&](const Method& method) {
    return std::ranges::any_of(split(method.parts, ' '), [&](std::string_view part) {
      return !part.empty() && tensor.ends_with(part);
    });
  });
}

// Refuses parts that belong to no weight.
void refuse_what_is_left(const Quantized& quantized) {
  for (const auto& [name, tensor] : quantized.tensors.all()) {
    if (tensor.quantized) continue;
    if (tensor.name.find(".quant_state.") != std::string::npos || is_part(tensor.name))
      quantized.refuse(tensor, "is a part of a quantised weight without the other parts");
    if (tensor.name.ends_with(".weight") && !has_name(kFloats, tensor.dtype))
      quantized.refuse(tensor, "is " + tensor.dtype + " without matching parts of a quantised weight");
  }
}

}  // namespace

void check_quantization(const JsonFields& config) {
  const auto found = settings(config);
  if (!found || find_method(found->second) != nullptr) return;
  std::vector<std::string_view> names;
  for (const Method& method : kMethods) names.push_back(method.name);
  config.fail("quantization_config",
              fmt::format("a checkpoint quantised by {:.40} is not supported; use one by {}, or the original "
                          "in f32, f16 or bf16, optionally with `quantize` q8 or q4",
                          found->second, fmt::join(names, ", ")));
}

std::pair<nlohmann::json, std::string> quantization_config(const ModelTexts& texts) {
  std::pair all(texts.object("config.json"), texts.file("config.json").string());
  const TextPart text = text_part(all.first, all.second);
  if (settings(JsonFields(text.json, all.second, text.prefix))) return all;
  for (const Method& method : kMethods) {
    if (*method.file == '\0' || !texts.has(method.file)) continue;
    nlohmann::json found = texts.object(method.file);
    if (found.contains("quantization")) found = nlohmann::json(found["quantization"]);
    if (found.is_object() && !found.contains("quant_method")) found["quant_method"] = method.name;
    return {{{"quantization_config", found}}, texts.file(method.file).string()};
  }
  return all;
}

std::string quantization_method(const ModelTexts& texts) {
  const auto [config, file] = quantization_config(texts);
  const TextPart text = text_part(config, file);
  const auto found = settings(JsonFields(text.json, file, text.prefix));
  return found ? found->second : "";
}

void read_quantized(const nlohmann::json& config, const std::string& file, Tensors& tensors,
                    std::vector<std::string>& warnings) {
  const TextPart text = text_part(config, file);
  const JsonFields fields(text.json, file, text.prefix);
  read_stacked_experts(tensors);
  read_conv1d(tensors);
  rename_mlx_experts({"mlx", fields, tensors, warnings});
  const auto found = settings(fields);
  if (!found) return;
  check_quantization(fields);
  const Quantized quantized{found->second, found->first, tensors, warnings};
  mark_activations_read(quantized);
  find_method(found->second)->read(quantized);
  refuse_what_is_left(quantized);
  if (std::ranges::none_of(tensors.all(), [](const auto& each) { return each.second.quantized; })) {
    warnings.push_back(
        fields.message(fields.has("quantization_config") ? "quantization_config" : "quantization",
                       "no tensor is quantised; the weights run as floats"));
  }
}

}  // namespace lariat
