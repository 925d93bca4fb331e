#include "models/quantization/quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/convert.h"
#include "kernels/error.h"
#include "kernels/integers.h"
#include "kernels/quant.h"

namespace lariat {
namespace {

// Largest group size whose inputs share a scale; 0: none.
int64_t size_within(int64_t group, int64_t cols) {
  if (group >= cols) return 128;
  for (const int64_t size : {128, 64, 32}) {
    if (group > 0 && group % size == 0) return size;
  }
  return 0;
}

HostWeight floats_of(const GroupedWeight& weight) {
  const auto read = [weight, format = WeightFormat(weight.width, weight.grouping)](int64_t row,
                                                                                   const CodeRow& to) {
    std::vector<uint8_t> codes(static_cast<size_t>(weight.cols));
    weight.codes(row, codes.data());
    for (int64_t col = 0; col < weight.cols; ++col) {
      const auto [scale, minimum] = weight.scale(row, col);
      const double product = static_cast<double>(scale) * code_value(format, codes[static_cast<size_t>(col)]);
      store_f32(to.codes, DType::kF32, col, static_cast<float>(product + minimum));
    }
  };
  return {DType::kF32, weight.rows, weight.cols, read};
}

HostWeight codes_of(GroupedWeight weight, int64_t size) {
  weight.grouping.size = static_cast<uint8_t>(size);
  weight.grouping.block = size == 128 ? 128 : 64;
  const auto read = [weight, size](int64_t row, const CodeRow& to) {
    weight.codes(row, to.codes);
    for (int64_t g = 0; g * size < weight.cols; ++g) {
      const auto [scale, minimum] = weight.scale(row, g * size);
      to.scales[g] = scale;
      if (weight.grouping.minimum) to.minima[g] = minimum;
    }
  };
  return {WeightFormat(weight.width, weight.grouping), weight.rows, weight.cols, read};
}

}  // namespace

std::vector<std::string> Quantized::modules(std::string_view end, std::string_view dtypes) const {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : tensors.all()) {
    if (name.size() > end.size() && name.ends_with(end) && !tensor.quantized &&
        (dtypes.empty() || has_name(dtypes, tensor.dtype)))
      found.push_back(name.substr(0, name.size() - end.size()));
  }
  return found;
}

std::optional<StoredTensor> Quantized::take(const std::string& name, std::string_view dtypes) const {
  auto tensor = tensors.take(name);
  if (tensor && !dtypes.empty() && !has_name(dtypes, tensor->dtype))
    refuse(*tensor, fmt::format("is {}, expected {}", tensor->dtype, dtypes));
  return tensor;
}

StoredTensor Quantized::need(const std::string& module, std::string_view end, std::string_view dtypes) const {
  auto tensor = take(module + std::string(end), dtypes);
  if (tensor) return *std::move(tensor);
  throw Error(
      fmt::format("{}: '{:.200}' is quantised by {} and has no tensor '{}'; the checkpoint is incomplete, "
                  "download it again",
                  tensors.source().string(), module, method, end));
}

void Quantized::refuse(const StoredTensor& tensor, const std::string& what) const {
  throw Error(fmt::format("{}: tensor '{:.200}' {}; download it again, or use another variant of {}",
                          tensor.file.string(), tensor.name, what, method));
}

void Quantized::check_shape(const StoredTensor& tensor, const std::vector<int64_t>& shape) const {
  if (tensor.shape == shape) return;
  refuse(tensor, fmt::format("has shape {}, expected {}", shape_text(tensor.shape), shape_text(shape)));
}

void Quantized::check_matrix(const StoredTensor& tensor) const {
  if (tensor.shape.size() == 2 && tensor.bytes > 0) return;
  refuse(tensor, fmt::format("has shape {}, expected two sizes above 0", shape_text(tensor.shape)));
}

int64_t Quantized::group_size(const StoredTensor& scales, int64_t in, int64_t groups,
                              std::span<const int64_t> given) const {
  for (const int64_t size : given) {
    if (size > 0 && ceil_div(in, size) == groups) return size;
  }
  if (groups > 0 && in % groups == 0) return in / groups;
  refuse(scales, fmt::format("has shape {}: no equal groups of {} inputs", shape_text(scales.shape), in));
}

std::vector<int32_t> Quantized::unsorted_groups(const std::string& g_idx, int64_t in, int64_t groups,
                                                int64_t group) const {
  const auto tensor = take(g_idx, "I32");
  if (!tensor) return {};
  check_shape(*tensor, {in});
  std::vector<int32_t> of(static_cast<size_t>(in));
  std::memcpy(of.data(), tensor->data, tensor->bytes);
  if (std::ranges::all_of(of, [](int32_t g) { return g == -1; })) return {};
  bool sorted = true;
  for (int64_t i = 0; i < in; ++i) {
    const int32_t g = of[static_cast<size_t>(i)];
    if (g < 0 || g >= groups) refuse(*tensor, fmt::format("sends input {} to group {} of {}", i, g, groups));
    sorted = sorted && g == i / group;
  }
  return sorted ? std::vector<int32_t>() : of;
}

FloatView::FloatView(const StoredTensor& tensor)
    : bytes_(tensor),
      dtype_(tensor.dtype == "F8_E8M0" ? std::nullopt : std::optional(tensor.float_dtype())) {}

float FloatView::operator[](int64_t i) const {
  if (!dtype_) return e8m0_to_f32(bytes_[i]);
  const auto element = [&](auto value) {
    std::memcpy(&value, bytes_.data + static_cast<size_t>(i) * sizeof value, sizeof value);
    return value;
  };
  if (dtype_ == DType::kF32) return element(0.0F);
  return dtype_ == DType::kF16 ? f16_to_f32(element(uint16_t{0})) : bf16_to_f32(element(uint16_t{0}));
}

ScaleType FloatView::type() const {
  if (dtype_ == DType::kF16) return ScaleType::kF16;
  return dtype_ == DType::kBF16 ? ScaleType::kBF16 : ScaleType::kF32;
}

void add_weight(const Quantized& quantized, const std::string& name, const StoredTensor& main,
                GroupedWeight weight) {
  StoredTensor tensor = main;
  tensor.name = name;
  tensor.shape = {weight.rows, weight.cols};
  if (weight.experts > 0) tensor.shape = {weight.experts, weight.rows / weight.experts, weight.cols};
  tensor.quantized = true;
  const int64_t size = size_within(weight.group, weight.cols);
  if (size == 0) tensor.dtype = "F32";
  tensor.reader =
      std::make_shared<const HostWeight>(size == 0 ? floats_of(weight) : codes_of(std::move(weight), size));
  quantized.tensors.put(std::move(tensor));
}

void put_mxfp4(const Quantized& quantized, const std::string& name, const StoredTensor& main, bool stacked,
               const StoredTensor& scales, int64_t first_row, int64_t step) {
  const int64_t rows = main.shape[0] * (stacked ? main.shape[1] : 1) / step,
                cols = static_cast<int64_t>(main.bytes) / (rows * step) * 2, groups = cols / 32;
  const View<uint8_t> exponents(scales);
  GroupedWeight weight{rows, cols, DType::kQ4, {.code = Code::kE2M1}, 32};
  if (stacked) weight.experts = main.shape[0];
  weight.codes = [=, nibbles = BitView{main.data, 4}](int64_t row, uint8_t* codes) {
    for (int64_t c = 0; c < cols; ++c) codes[c] = nibbles[(first_row + row * step) * cols + c];
  };
  weight.scale = [=](int64_t row, int64_t col) {  // the table's values are doubled
    return Scale{e8m0_to_f32(exponents[(first_row + row * step) * groups + col / 32]) / 2};
  };
  StoredTensor share = main;
  share.bytes /= static_cast<size_t>(step);
  share.data += static_cast<size_t>(first_row) * share.bytes;
  add_weight(quantized, name, share, std::move(weight));
}

}  // namespace lariat
