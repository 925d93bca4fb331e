// GPTQ and AWQ, packed transposed, [inputs, outputs]: ModelCloud/GPTQModel, gptqmodel/nn_modules/qlinear;
// casper-hansen/AutoAWQ, awq/modules/linear/gemm.py.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/integers.h"
#include "models/quantization/quantized.h"

namespace lariat {
namespace {

// GPTQ's first version stores zero points minus one, subtracted from whole words.
class Zeros {
 public:
  Zeros(const StoredTensor& tensor, int bits, bool less_one)
      : words_(tensor),
        across_(tensor.shape[1]),
        in_word_(32 / bits),
        bits_(bits),
        plus_(!less_one   ? 0
              : bits == 4 ? 0x11111111U
                          : 0x01010101U) {}
  float operator()(int64_t group, int64_t out) const {
    const uint32_t word = words_[group * across_ + out / in_word_] + plus_;
    return static_cast<float>(word >> (out % in_word_ * bits_) & ((1U << bits_) - 1));
  }
  bool all(const StoredTensor& tensor, uint32_t word) const {
    for (int64_t i = 0; i < tensor.shape[0] * across_; ++i) {
      if (words_[i] != word) return false;
    }
    return true;
  }

 private:
  View<uint32_t> words_;
  int64_t across_, in_word_;
  int bits_;
  uint32_t plus_;
};

int bits_of(const Quantized& quantized, const StoredTensor& qzeros, int64_t out) {
  for (const int bits : {4, 8}) {
    if (qzeros.shape[1] == ceil_div<int64_t>(out * bits, 32)) return bits;
  }
  quantized.refuse(qzeros, fmt::format("has shape {}: not 4 or 8 bits for each of {} outputs",
                                       shape_text(qzeros.shape), out));
}

void read_gptq_weight(const Quantized& quantized, const std::string& module, bool first_version) {
  const JsonFields& config = quantized.config;
  const StoredTensor qweight = quantized.need(module, ".qweight", "I32");
  const StoredTensor scales = quantized.need(module, ".scales", kFloats);
  const StoredTensor qzeros = quantized.need(module, ".qzeros", "I32");
  for (const StoredTensor* matrix : {&qweight, &scales, &qzeros}) quantized.check_matrix(*matrix);
  const int64_t out = qweight.shape[1], groups = scales.shape[0];
  quantized.check_shape(scales, {groups, out});
  const int bits = bits_of(quantized, qzeros, out);
  quantized.check_shape(qzeros, {groups, qzeros.shape[1]});
  const int64_t in_word = 32 / bits, in = qweight.shape[0] * in_word;
  const int64_t given = config.integer("group_size", -1, 1 << 24).value_or(-1);
  const int64_t group = quantized.group_size(scales, in, groups, {&given, 1});
  std::vector<int32_t> of = quantized.unsorted_groups(module + ".g_idx", in, groups, group);
  // Files of both versions say "gptq": accepts a symmetric zero point in either encoding.
  const Zeros zero(qzeros, bits, first_version);
  const uint32_t middle = bits == 4 ? 0x88888888U : 0x80808080U, ones = middle / 8U / (bits == 4 ? 1 : 16);
  const bool symmetric =
      config.boolean("sym").value_or(false) && (zero.all(qzeros, middle) || zero.all(qzeros, middle - ones));
  const FloatView scale(scales);
  GroupedWeight weight{out,
                       in,
                       bits == 4 ? DType::kQ4 : DType::kQ8,
                       {.scales = symmetric ? scale.type() : ScaleType::kF32, .minimum = !symmetric},
                       of.empty() ? group : 0};
  weight.codes = [words = View<uint32_t>(qweight), in, out, in_word, bits](int64_t row, uint8_t* codes) {
    for (int64_t k = 0; k < in; k += in_word) {
      uint32_t word = words[k / in_word * out + row];
      for (int64_t i = 0; i < in_word; ++i, word >>= bits)
        codes[k + i] = static_cast<uint8_t>(word & ((1U << bits) - 1));
    }
  };
  weight.scale = [=, of = std::move(of)](int64_t row, int64_t col) {
    const int64_t g = of.empty() ? col / group : of[static_cast<size_t>(col)];
    const float s = scale[g * out + row];
    return Scale{s, symmetric ? 0 : -zero(g, row) * s};
  };
  add_weight(quantized, module + ".weight", qweight, std::move(weight));
}

// Position of output n % 8 in its word.
constexpr int kAwqNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};

uint8_t awq_code(uint32_t word, int64_t out) {
  return static_cast<uint8_t>(word >> (4 * kAwqNibble[out % 8]) & 15);
}

void read_awq_weight(const Quantized& quantized, const std::string& module) {
  const StoredTensor qweight = quantized.need(module, ".qweight", "I32");
  const StoredTensor scales = quantized.need(module, ".scales", kFloats);
  const auto qzeros = quantized.take(module + ".qzeros", "I32");
  for (const StoredTensor* matrix : {&qweight, &scales}) quantized.check_matrix(*matrix);
  const int64_t in = qweight.shape[0], words = qweight.shape[1], out = words * 8, groups = scales.shape[0];
  quantized.check_shape(scales, {groups, out});
  if (qzeros) quantized.check_shape(*qzeros, {groups, words});
  const int64_t given =
      quantized.config
          .integer(quantized.config.has("group_size") ? "group_size" : "q_group_size", -1, 1 << 24)
          .value_or(-1);
  const int64_t group = quantized.group_size(scales, in, groups, {&given, 1});
  const FloatView scale(scales);
  const bool minimum = qzeros.has_value();
  GroupedWeight weight{
      out, in, DType::kQ4, {.scales = minimum ? ScaleType::kF32 : scale.type(), .minimum = minimum}, group};
  weight.codes = [packed = View<uint32_t>(qweight), in, words](int64_t row, uint8_t* codes) {
    for (int64_t k = 0; k < in; ++k) codes[k] = awq_code(packed[k * words + row / 8], row);
  };
  weight.scale = [=, zeros = View<uint32_t>(minimum ? *qzeros : qweight)](int64_t row, int64_t col) {
    const int64_t g = col / group;
    const float s = scale[g * out + row];
    return Scale{s, minimum ? -static_cast<float>(awq_code(zeros[g * words + row / 8], row)) * s : 0};
  };
  add_weight(quantized, module + ".weight", qweight, std::move(weight));
}

std::string one_of(const JsonFields& config, std::string_view key, std::string missing,
                   std::string_view known) {
  std::string value = config.string(key).value_or(std::move(missing));
  if (!has_name(known, value)) config.fail(key, "expected one of (" + std::string(known) + ")");
  return value;
}

}  // namespace

void read_gptq(const Quantized& quantized) {
  const JsonFields& config = quantized.config;
  const auto bits = config.integer("bits", 1, 32).value_or(4);
  if (bits != 4 && bits != 8) config.fail("bits", "expected 4 or 8");
  const std::string_view key = config.has("checkpoint_format") ? "checkpoint_format" : "format";
  const bool first_version = one_of(config, key, "gptq", "gptq gptq_v2") == "gptq";
  if (config.has("pack_dtype")) one_of(config, "pack_dtype", "int32", "int32");
  for (const std::string& module : quantized.modules(".qweight"))
    read_gptq_weight(quantized, module, first_version);
}

void read_awq(const Quantized& quantized) {
  const JsonFields& config = quantized.config;
  const std::string_view key = config.has("bits") ? "bits" : "w_bit";
  if (config.integer(key, 1, 32).value_or(4) != 4) config.fail(key, "expected 4");
  one_of(config, config.has("version") ? "version" : "format", "gemm", "gemm GEMM");
  for (const std::string& module : quantized.modules(".qweight")) read_awq_weight(quantized, module);
}

}  // namespace lariat
