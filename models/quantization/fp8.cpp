// 8-bit floats or integers with scales, by blocks (DeepSeek): transformers 5.24,
// integrations/finegrained_fp8.py; by rows: integrations/fbgemm_fp8.py.
#include <fmt/format.h>

#include "kernels/integers.h"
#include "models/quantization/quantized.h"

namespace lariat {
namespace {

struct Grid {
  int64_t rows, cols, across;
  int64_t at(int64_t row, int64_t col) const { return row / rows * across + col / cols; }
};

Grid grid_of(const Quantized& quantized, const StoredTensor& weight, const StoredTensor& scales,
             const std::vector<int64_t>& block) {
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  std::vector<int64_t> shape = scales.shape;
  if (shape.size() < 2) shape.insert(shape.end(), 2 - shape.size(), 1);
  const int64_t down = shape[0], across = shape[1];
  if (shape.size() == 2 && block.size() == 2 && down == ceil_div(rows, block[0]) &&
      across == ceil_div(cols, block[1]))
    return {block[0], block[1], across};
  if (shape.size() == 2 && down == 1 && across == 1) return {rows, cols, 1};
  if (shape.size() == 2 && down == rows && across > 0 && cols % across == 0)
    return {1, cols / across, across};
  quantized.refuse(scales, fmt::format("has shape {}, but the weight has {}", shape_text(scales.shape),
                                       shape_text(weight.shape)));
}

}  // namespace

void put_scaled(const Quantized& quantized, const std::string& name, const StoredTensor& weight,
                const StoredTensor& scales, const std::optional<StoredTensor>& zeros,
                const std::vector<int64_t>& block) {
  quantized.check_matrix(weight);
  const bool integers = weight.dtype == "I8";
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  const Grid grid = grid_of(quantized, weight, scales, block);
  const FloatView scale(scales);
  bool minimum = false;
  if (zeros) {
    quantized.check_shape(*zeros, scales.shape);
    for (size_t i = 0; i < zeros->bytes; ++i) minimum = minimum || zeros->data[i] != std::byte{0};
    if (minimum && !integers) quantized.refuse(*zeros, "has zero points other than 0 for floats");
  }
  const Grouping grouping{.code = integers ? Code::kLinear : Code::kE4M3,
                          .scales = integers && !minimum ? scale.type() : ScaleType::kF32,
                          .minimum = minimum};
  GroupedWeight made{rows, cols, DType::kQ8, grouping, grid.cols};
  made.codes = [data = weight.data, cols, flip = integers ? 0x80U : 0U](int64_t row, uint8_t* codes) {
    std::memcpy(codes, data + static_cast<size_t>(row * cols), static_cast<size_t>(cols));
    for (int64_t c = 0; flip != 0 && c < cols; ++c) codes[c] = static_cast<uint8_t>(codes[c] ^ flip);
  };
  made.scale = [=, zero = View<int8_t>(minimum ? *zeros : weight)](int64_t row, int64_t col) {
    const int64_t at = grid.at(row, col);
    return Scale{scale[at], minimum ? -static_cast<float>(128 + zero[at]) * scale[at] : 0.0F};
  };
  add_weight(quantized, name, weight, std::move(made));
}

void read_fp8(const Quantized& quantized) {
  const JsonFields& config = quantized.config;
  const auto block = config.integers("weight_block_size", 1, 1 << 24).value_or(std::vector<int64_t>{});
  if (config.string("fmt").value_or("e4m3") != "e4m3") config.fail("fmt", "expected e4m3");
  if (config.string("expert_dtype").value_or("fp8") != "fp8") config.fail("expert_dtype", "expected fp8");
  for (const std::string& module : quantized.modules(".weight", "F8_E4M3")) {
    const std::string name = module + ".weight";
    const bool inverse = quantized.tensors.find(name + "_scale_inv") != nullptr;
    const StoredTensor weight = quantized.need(module, ".weight", "F8_E4M3");
    const StoredTensor scales =
        quantized.need(module, inverse ? ".weight_scale_inv" : ".weight_scale", "F32 F16 BF16 F8_E8M0");
    put_scaled(quantized, name, weight, scales, {}, block);
  }
}

// NVIDIA ModelOpt: one scale per weight.
void read_modelopt(const Quantized& quantized) {
  if (quantized.config.string("quant_algo").value_or("FP8") != "FP8")
    quantized.config.fail("quant_algo", "expected FP8");
  read_fp8(quantized);
}

}  // namespace lariat
