// MLX: ml-explore/mlx, mlx/backend/cpu/quantized.cpp; ml-explore/mlx-lm 0.32, utils.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "models/quantization/quantized.h"

namespace lariat {
namespace {

struct Settings {
  int64_t group = 64;
  std::string mode = "affine";
};

Settings settings_of(const JsonFields& object, Settings settings) {
  settings.group = object.integer("group_size", 1, 4096).value_or(settings.group);
  settings.mode = object.string("mode").value_or(settings.mode);
  if (!has_name("affine mxfp4", settings.mode)) object.fail("mode", "expected affine or mxfp4");
  return settings;
}

bool is_end_of(std::string_view end, std::string_view name) {
  return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
}

// A module's own settings, under a name with another prefix than its tensors', or the config's.
Settings settings_of(const Quantized& quantized, const std::string& module) {
  const JsonFields& config = quantized.config;
  Settings settings = settings_of(config, {});
  for (const std::string& key : config.keys()) {
    if (config.holds_object(key) && (is_end_of(key, module) || is_end_of(module, key)))
      return settings_of(*config.object(key), settings);
  }
  return settings;
}

// Index of "switch_mlp." or "experts." (gpt-oss) in the name of stacked experts, else npos.
size_t find_stack(const std::string& module, const StoredTensor& tensor) {
  if (tensor.shape.size() != 3) return std::string::npos;
  const size_t at = std::min(module.find(".switch_mlp."), module.find(".experts."));
  return at == std::string::npos ? at : at + 1;
}

// Weight name; for stacked experts, the name of single experts without index.
std::string weight_name(const std::string& module, size_t at) {
  if (at == std::string::npos) return module + ".weight";
  std::string last = module.substr(module.find('.', at) + 1);
  if (module.find("block_sparse_moe.") != std::string::npos) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOwn = {
        {{"gate_proj", "w1"}, {"down_proj", "w2"}, {"up_proj", "w3"}}};
    for (const auto& [mlx, own] : kOwn) {
      if (last == mlx) last = own;
    }
  }
  return fmt::format("{}experts.{}.weight", module.substr(0, at), last);
}

void put_affine(const Quantized& quantized, const std::string& name, const StoredTensor& tensor,
                int64_t groups, int64_t group, const StoredTensor& scales, const StoredTensor& biases) {
  const bool stacked = tensor.shape.size() == 3;
  const int64_t rows = tensor.shape[0] * (stacked ? tensor.shape[1] : 1), words = tensor.shape.back(),
                per_group = words * 32 / groups;
  const auto bits = static_cast<int>(std::min<int64_t>(per_group / group, 9));
  if (words * 32 % groups != 0 || per_group % group != 0 || bits < 2 || bits > 8 || bits == 7)
    quantized.refuse(tensor, fmt::format("has {} words a row for {} groups of {} (\"group_size\" of "
                                         "config.json), not 2, 3, 4, 5, 6 or 8 bits",
                                         words, groups, group));
  const FloatView scale(scales), bias(biases);
  GroupedWeight weight{rows,
                       groups * group,
                       bits > 4 ? DType::kQ8 : DType::kQ4,
                       {.scales = scale.type(), .minimum = true, .bits = bits_field(bits)},
                       group};
  if (stacked) weight.experts = tensor.shape[0];
  weight.codes = [data = tensor.data, words, cols = weight.cols, bits](int64_t row, uint8_t* codes) {
    const BitView values{data + static_cast<size_t>(row * words) * 4, bits};
    for (int64_t c = 0; c < cols; ++c) codes[c] = values[c];
  };
  weight.scale = [=](int64_t row, int64_t col) {
    const int64_t at = row * groups + col / group;
    return Scale{scale[at], bias[at]};
  };
  add_weight(quantized, name, tensor, std::move(weight));
}

void read_module(const Quantized& quantized, const std::string& module) {
  const Settings settings = settings_of(quantized, module);
  const bool affine = settings.mode == "affine";
  const StoredTensor weight = quantized.need(module, ".weight", "U32");
  const StoredTensor scales = quantized.need(module, ".scales", affine ? kFloats : "U8 F8_E8M0");
  std::vector<int64_t> shape = weight.shape;
  if (scales.shape.empty() || shape.empty() || scales.bytes == 0)
    quantized.refuse(scales, "has shape " + shape_text(scales.shape));
  const int64_t groups = scales.shape.back();
  shape.back() = groups;
  quantized.check_shape(scales, shape);
  std::optional<StoredTensor> biases;
  if (affine) {
    biases = quantized.need(module, ".biases", scales.dtype);
    quantized.check_shape(*biases, shape);
  } else if (weight.shape.back() != groups * 4) {
    quantized.refuse(weight,
                     fmt::format("has shape {}, not {} groups of 32", shape_text(weight.shape), groups));
  }
  const size_t at = find_stack(module, weight);
  const bool stacked = at != std::string::npos;
  if (!stacked) quantized.check_matrix(weight);
  if (weight.bytes == 0) quantized.refuse(weight, "is empty");
  const std::string name = weight_name(module, at);
  affine ? put_affine(quantized, name, weight, groups, settings.group, scales, *biases)
         : put_mxfp4(quantized, name, weight, stacked, scales);
}

}  // namespace

void read_mlx(const Quantized& quantized) {
  settings_of(quantized.config, {});
  for (const std::string& module : quantized.modules(".scales")) read_module(quantized, module);
}

void rename_mlx_experts(const Quantized& quantized) {
  for (const std::string& module : quantized.modules(".weight", kFloats)) {
    const size_t at = find_stack(module, *quantized.tensors.find(module + ".weight"));
    if (at == std::string::npos) continue;
    StoredTensor stack = quantized.need(module, ".weight", kFloats);
    stack.name = weight_name(module, at);
    quantized.tensors.put(std::move(stack));
  }
}

}  // namespace lariat
