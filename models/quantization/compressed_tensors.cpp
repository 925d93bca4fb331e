// vllm-project/compressed-tensors up to 0.20: compressors/ and quantization/.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "kernels/integers.h"
#include "models/quantization/quantized.h"

namespace lariat {
namespace {

struct Groups {
  std::vector<int64_t> sizes, block;
};

// "128x128", once, or [128, 128].
std::vector<int64_t> block_structure(const JsonFields& weights) {
  const nlohmann::json* value = weights.find("block_structure");
  if (value == nullptr || !value->is_string())
    return weights.integers("block_structure", 1, 1 << 24).value_or(std::vector<int64_t>{});
  std::string text = *weights.string("block_structure");
  std::ranges::replace(text, 'x', ',');
  const nlohmann::json pair = {{"block_structure", nlohmann::json::parse("[" + text + "]", nullptr, false)}};
  return JsonFields(pair, weights.file())
      .integers("block_structure", 1, 1 << 24)
      .value_or(std::vector<int64_t>{});
}

Groups read_groups(const JsonFields& config) {
  Groups groups;
  const auto all = config.object("config_groups");
  for (const std::string& name : all ? all->keys() : std::vector<std::string>()) {
    const auto group = all->object(name);
    const auto weights = group ? group->object("weights") : std::nullopt;
    if (!weights) continue;
    groups.sizes.push_back(weights->integer("group_size", -1, 1 << 24).value_or(-1));
    if (auto block = block_structure(*weights); !block.empty()) groups.block = std::move(block);
  }
  return groups;
}

// Packed zeros run along the outputs; unpacked zeros are signed.
std::function<int(int64_t row, int64_t group)> zero_of(const Quantized& quantized, const StoredTensor& tensor,
                                                       int bits, int64_t rows, int64_t groups) {
  if (tensor.dtype == "I8") {
    quantized.check_shape(tensor, {rows, groups});
    return [zero = View<int8_t>(tensor), groups, middle = 1 << (bits - 1)](int64_t row, int64_t group) {
      return middle + zero[row * groups + group];
    };
  }
  quantized.check_shape(tensor, {ceil_div<int64_t>(rows * bits, 32), groups});
  return [words = View<uint32_t>(tensor), groups, bits](int64_t row, int64_t group) {
    const int64_t in_word = 32 / bits;
    return static_cast<int>(words[row / in_word * groups + group] >> (row % in_word * bits) &
                            ((1U << bits) - 1));
  };
}

void read_packed(const Quantized& quantized, const std::string& module, const Groups& given) {
  const StoredTensor packed = quantized.need(module, ".weight_packed", "I32");
  const StoredTensor scales = quantized.need(module, ".weight_scale", kFloats);
  const StoredTensor shape = quantized.need(module, ".weight_shape", "I64 I32");
  const auto zeros = quantized.take(module + ".weight_zero_point", "I32 I8");
  quantized.check_matrix(packed);
  quantized.check_matrix(scales);
  quantized.check_shape(shape, {2});
  const bool wide = shape.dtype == "I64";
  const int64_t rows = packed.shape[0], words = packed.shape[1], groups = scales.shape[1];
  const int64_t cols = wide ? View<int64_t>(shape)[1] : View<int32_t>(shape)[1];
  if ((wide ? View<int64_t>(shape)[0] : View<int32_t>(shape)[0]) != rows || cols < 1 || cols > words * 16)
    quantized.refuse(shape, "does not fit shape " + shape_text(packed.shape) + " of the packed weight");
  const int bits = words == ceil_div<int64_t>(cols, 4)    ? 8
                   : words == ceil_div<int64_t>(cols, 8)  ? 4
                   : words == ceil_div<int64_t>(cols, 16) ? 2
                                                          : 0;
  if (bits == 0)
    quantized.refuse(packed, fmt::format("has {} words for {} inputs: not 2, 4 or 8 bits", words, cols));
  quantized.check_shape(scales, {rows, groups});
  const int64_t group = quantized.group_size(scales, cols, groups, given.sizes);
  std::vector<int32_t> of = quantized.unsorted_groups(module + ".weight_g_idx", cols, groups, group);
  const FloatView scale(scales);
  const bool minimum = zeros.has_value();
  std::function<int(int64_t, int64_t)> zero;
  if (minimum) zero = zero_of(quantized, *zeros, bits, rows, groups);
  GroupedWeight weight{
      rows,
      cols,
      bits == 8 ? DType::kQ8 : DType::kQ4,
      {.scales = minimum ? ScaleType::kF32 : scale.type(), .minimum = minimum, .bits = bits_field(bits)},
      of.empty() ? group : 0};
  weight.codes = [data = packed.data, words, cols, bits](int64_t row, uint8_t* codes) {
    const BitView values{data + static_cast<size_t>(row * words) * 4, bits};
    for (int64_t c = 0; c < cols; ++c) codes[c] = values[c];
  };
  weight.scale = [=, of = std::move(of)](int64_t row, int64_t col) {
    const int64_t g = of.empty() ? col / group : of[static_cast<size_t>(col)];
    const float s = scale[row * groups + g];
    return Scale{s, minimum ? -static_cast<float>(zero(row, g)) * s : 0};
  };
  add_weight(quantized, module + ".weight", packed, std::move(weight));
}

void read_fp4(const Quantized& quantized, const std::string& module) {
  const StoredTensor packed = quantized.need(module, ".weight_packed", "U8");
  if (quantized.tensors.find(module + ".weight_global_scale") != nullptr)
    quantized.refuse(packed, "is NVFP4, not supported");
  const StoredTensor scales = quantized.need(module, ".weight_scale", "U8 F8_E8M0");
  quantized.take(module + ".weight_shape", "");
  quantized.check_matrix(packed);
  if (packed.shape[1] % 16 != 0) quantized.refuse(packed, "has rows that are not whole groups of 32");
  quantized.check_shape(scales, {packed.shape[0], packed.shape[1] / 16});
  put_mxfp4(quantized, module + ".weight", packed, false, scales);
}

}  // namespace

void read_compressed_tensors(const Quantized& quantized) {
  const JsonFields& config = quantized.config;
  const auto sparsity = config.object("sparsity_config");
  if (sparsity && sparsity->string("format").value_or("dense") != "dense")
    sparsity->fail("format", "sparse weights are not supported; use a dense checkpoint");
  if (is_set(config.find("transform_config")))
    config.fail("transform_config", "rotated weights are not supported; use another checkpoint");
  const Groups groups = read_groups(config);
  for (const std::string& module : quantized.modules(".weight_packed", "U8")) read_fp4(quantized, module);
  for (const std::string& module : quantized.modules(".weight_packed"))
    read_packed(quantized, module, groups);
  for (const std::string& module : quantized.modules(".weight", "F8_E4M3 I8")) {
    const StoredTensor weight = quantized.need(module, ".weight", "F8_E4M3 I8");
    const StoredTensor scales = quantized.need(module, ".weight_scale", kFloats);
    const auto zeros = quantized.take(module + ".weight_zero_point", "I8 F8_E4M3");
    put_scaled(quantized, weight.name, weight, scales, zeros, groups.block);
  }
}

}  // namespace lariat
