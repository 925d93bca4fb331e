// bitsandbytes 0.50: functional.py (QuantState), nn/modules.py.
#include <fmt/format.h>

#include <numeric>

#include "kernels/integers.h"
#include "kernels/quant.h"
#include "models/io/json_file.h"
#include "models/quantization/quantized.h"

namespace lariat {
namespace {

// X.weight.quant_state.bitsandbytes__nf4, a JSON text.
struct QuantState {
  int64_t rows, cols, block, nested_block;
  float offset;
};

QuantState read_state(const Quantized& quantized, const StoredTensor& tensor, const std::string& type) {
  const std::string file = fmt::format("{}: tensor '{:.200}'", tensor.file.string(), tensor.name);
  if (tensor.bytes > kMaxConfigBytes) quantized.refuse(tensor, "is too long");
  const nlohmann::json json =
      parse_json_object({reinterpret_cast<const char*>(tensor.data), tensor.bytes}, file);
  const JsonFields fields(json, file);
  if (fields.string("quant_type").value_or(type) != type) fields.fail("quant_type", "expected " + type);
  const auto shape = fields.integers("shape", 1, INT32_MAX).value_or(std::vector<int64_t>{});
  if (shape.size() != 2) fields.fail("shape", "expected two sizes");
  return {shape[0], shape[1], fields.need_integer("blocksize", 1, 1 << 16),
          fields.integer("nested_blocksize", 1, 1 << 16).value_or(256),
          static_cast<float>(fields.number("nested_offset", -1e30, 1e30).value_or(0))};
}

// Largest magnitude of each block: a float, or a byte with table, outer scale and offset.
std::function<float(int64_t block)> absmax_of(const Quantized& quantized, const std::string& name,
                                              const QuantState& state, int64_t blocks) {
  const StoredTensor absmax = quantized.need(name, ".absmax", "F32 U8");
  quantized.check_shape(absmax, {blocks});
  if (absmax.dtype == "F32") return [absmax = FloatView(absmax)](int64_t block) { return absmax[block]; };
  const StoredTensor outer = quantized.need(name, ".nested_absmax", "F32");
  const StoredTensor table = quantized.need(name, ".nested_quant_map", "F32");
  quantized.check_shape(outer, {ceil_div(blocks, state.nested_block)});
  quantized.check_shape(table, {256});
  return [codes = View<uint8_t>(absmax), outer = FloatView(outer), table = FloatView(table),
          state](int64_t block) {
    const float product = table[codes[block]] * outer[block / state.nested_block];
    return product + state.offset;
  };
}

void read_4bit(const Quantized& quantized, const std::string& name, const std::string& type) {
  const WeightFormat format(DType::kQ4,
                            {.code = type == "nf4" ? Code::kNf4 : Code::kFp4, .scales = ScaleType::kF32});
  const StoredTensor state_text = quantized.need(name, ".quant_state.bitsandbytes__" + type, "U8");
  const QuantState state = read_state(quantized, state_text, type);
  const StoredTensor packed = quantized.need(name, "", "U8 F32 F16 BF16");  // stored under various dtypes
  if (static_cast<int64_t>(packed.bytes) != ceil_div<int64_t>(state.rows * state.cols, 2))
    quantized.refuse(
        packed, fmt::format("has {} bytes, not [{}, {}] in 4 bits", packed.bytes, state.rows, state.cols));
  const StoredTensor map = quantized.need(name, ".quant_map", "F32");
  quantized.check_shape(map, {16});
  for (int64_t i = 0; i < 16; ++i) {
    if (FloatView(map)[i] != code_table(format.grouping.code)[static_cast<size_t>(i)])
      quantized.refuse(map, "has other numbers than " + type);
  }
  const auto absmax = absmax_of(quantized, name, state, ceil_div(state.rows * state.cols, state.block));
  // Blocks continue across rows.
  GroupedWeight weight{state.rows, state.cols, DType::kQ4, format.grouping,
                       std::gcd(state.block, state.cols)};
  weight.codes = [data = packed.data, cols = state.cols](int64_t row, uint8_t* codes) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = row * cols + c;
      const auto pair = static_cast<uint8_t>(data[static_cast<size_t>(i / 2)]);
      codes[c] = i % 2 == 0 ? pair >> 4 : pair & 15;
    }
  };
  weight.scale = [=](int64_t row, int64_t col) {
    return Scale{absmax((row * state.cols + col) / state.block)};
  };
  add_weight(quantized, name, packed, std::move(weight));
}

void read_8bit(const Quantized& quantized, const std::string& module) {
  const StoredTensor weight = quantized.need(module, ".weight", "I8");
  const StoredTensor scales = quantized.need(module, ".SCB", "F32");
  quantized.check_matrix(weight);
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  quantized.check_shape(scales, {rows});
  if (const auto order = quantized.take(module + ".weight_format", "U8")) {
    if (order->bytes != 1 || order->data[0] != std::byte{0}) quantized.refuse(*order, "is not row-major");
  }
  GroupedWeight made{rows, cols, DType::kQ8, {.scales = ScaleType::kF32}, cols};
  made.codes = [data = weight.data, cols](int64_t row, uint8_t* codes) {
    for (int64_t c = 0; c < cols; ++c)
      codes[c] = static_cast<uint8_t>(data[static_cast<size_t>(row * cols + c)] ^ std::byte{0x80});
  };
  made.scale = [scale = FloatView(scales)](int64_t row, int64_t) { return Scale{scale[row] / 127}; };
  add_weight(quantized, weight.name, weight, std::move(made));
}

}  // namespace

void read_bitsandbytes(const Quantized& quantized) {
  for (const std::string type : {"nf4", "fp4"}) {
    for (const std::string& name : quantized.modules(".quant_state.bitsandbytes__" + type))
      read_4bit(quantized, name, type);
  }
  for (const std::string& module : quantized.modules(".SCB")) read_8bit(quantized, module);
}

}  // namespace lariat
