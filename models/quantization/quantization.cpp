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

// Methods by "quant_method".
struct Method {
  std::string_view name;
  void (*read)(const Quantized& quantized);
};
constexpr Method kMethods[] = {
    {"fp8", read_fp8},   {"fbgemm_fp8", read_fp8}, {"compressed-tensors", read_compressed_tensors},
    {"gptq", read_gptq}, {"awq", read_awq},        {"bitsandbytes", read_bitsandbytes},
    {"mlx", read_mlx},   {"mxfp4", read_mxfp4},    {"modelopt", read_modelopt}};

const Method* find_method(std::string_view name) {
  const auto found = std::ranges::find_if(kMethods, [&](const Method& each) { return each.name == name; });
  return found == std::end(kMethods) ? nullptr : &*found;
}

// Method of settings without a name, recognised by its keys.
std::string unnamed_method(const JsonFields& object) {
  constexpr std::pair<std::string_view, const char*> kKeys[] = {{"load_in_4bit", "bitsandbytes"},
                                                                {"load_in_8bit", "bitsandbytes"},
                                                                {"quant_algo", "modelopt"},
                                                                {"w_bit", "awq"},
                                                                {"desc_act", "gptq"}};
  for (const auto& [key, method] : kKeys) {
    if (object.has(key)) return method;
  }
  return "mlx";
}

// The method's settings and name; nothing if no weight is quantised. MLX writes "quantization", other methods
// "quantization_config", with or without a name.
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

// Scales of inputs, outputs or cached keys and values, next to weights. lariat quantises none of these.
constexpr std::string_view kPassedOver[] = {".input_scale",  ".input_zero_point",  ".activation_scale",
                                            ".output_scale", ".output_zero_point", ".k_scale",
                                            ".v_scale",      ".q_scale",           ".kv_scale",
                                            ".k_zero_point", ".v_zero_point"};

// The same in the method's settings.
constexpr const char* kIdleKeys[] = {"input_activations", "output_activations",  "kv_cache_scheme",
                                     "activation_scheme", "activation_scale_ub", "kv_cache_quant_algo"};

void pass_over_activations(const Quantized& quantized) {
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

constexpr std::string_view kParts[] = {".qweight",          ".qzeros",
                                       ".scales",           ".g_idx",
                                       ".biases",           ".weight_scale",
                                       ".weight_scale_inv", ".weight_packed",
                                       ".weight_shape",     ".weight_zero_point",
                                       ".weight_g_idx",     ".SCB",
                                       ".weight_format",    ".absmax",
                                       ".quant_map",        ".compressed",
                                       ".bitmask",          ".weight_global_scale",
                                       ".weight_scale_2",   ".qscale_weight",
                                       ".scale_weight"};

// Refuses parts that belong to no weight.
void refuse_what_is_left(const Quantized& quantized) {
  for (const auto& [name, tensor] : quantized.tensors.all()) {
    if (tensor.quantized) continue;
    const auto ends_so = [&end = tensor.name](std::string_view part) { return end.ends_with(part); };
    if (tensor.name.find(".quant_state.") != std::string::npos || std::ranges::any_of(kParts, ends_so))
      quantized.refuse(tensor, "is a part of a quantised weight without the other parts");
    if (ends_so(".weight") && !has_name(kFloats, tensor.dtype))
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
  constexpr std::pair<const char*, const char*> kBeside[] = {
      {"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}, {"hf_quant_config.json", "modelopt"}};
  std::pair all(texts.object("config.json"), texts.file("config.json").string());
  const TextPart text = text_part(all.first, all.second);
  if (settings(JsonFields(text.json, all.second, text.prefix))) return all;
  for (const auto& [name, method] : kBeside) {
    if (!texts.has(name)) continue;
    nlohmann::json found = texts.object(name);
    if (found.contains("quantization")) found = nlohmann::json(found["quantization"]);
    if (found.is_object() && !found.contains("quant_method")) found["quant_method"] = method;
    return {{{"quantization_config", found}}, texts.file(name).string()};
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
  rename_mlx_experts({"mlx", fields, tensors, warnings});
  const auto found = settings(fields);
  if (!found) return;
  check_quantization(fields);
  const Quantized quantized{found->second, found->first, tensors, warnings};
  pass_over_activations(quantized);
  find_method(found->second)->read(quantized);
  refuse_what_is_left(quantized);
  if (std::ranges::none_of(tensors.all(), [](const auto& each) { return each.second.quantized; })) {
    warnings.push_back(
        fields.message(fields.has("quantization_config") ? "quantization_config" : "quantization",
                       "no tensor is quantised; the weights run as floats"));
  }
}

}  // namespace lariat
