#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/tensors.h"
#include "models/io/json_fields.h"

namespace lariat {

// A checkpoint during the conversion to plain names.
struct Quantized {
  std::string method;
  JsonFields config;
  Tensors& tensors;
  std::vector<std::string>& warnings;

  // Names, without `end`, of tensors that end in `end` and have one of the dtypes, if any.
  std::vector<std::string> modules(std::string_view end, std::string_view dtypes = "") const;
  // Removes a part of a module's weight from the tensors. dtypes: separated by spaces.
  std::optional<StoredTensor> take(const std::string& name, std::string_view dtypes) const;
  StoredTensor need(const std::string& module, std::string_view end, std::string_view dtypes) const;
  [[noreturn]] void refuse(const StoredTensor& tensor, const std::string& what) const;
  void check_shape(const StoredTensor& tensor, const std::vector<int64_t>& shape) const;
  // Throws Error unless the tensor is a matrix with data.
  void check_matrix(const StoredTensor& tensor) const;
  // Inputs per scale, for `groups` scales of `in` inputs: the first of `given` that fits, or equal shares.
  int64_t group_size(const StoredTensor& scales, int64_t in, int64_t groups,
                     std::span<const int64_t> given) const;
  // Group of each input in X.g_idx; empty if missing, in order, or -1 everywhere.
  std::vector<int32_t> unsorted_groups(const std::string& g_idx, int64_t in, int64_t groups,
                                       int64_t group) const;
};

// Possibly unaligned elements of a tensor.
template <class T>
struct View {
  const std::byte* data;
  explicit View(const StoredTensor& tensor) : data(tensor.data) {}
  T operator[](int64_t i) const {
    T value;
    std::memcpy(&value, data + static_cast<size_t>(i) * sizeof value, sizeof value);
    return value;
  }
};

inline constexpr std::string_view kFloats = "F32 F16 BF16";

// A power of two from 2^-127 (E8M0; OCP Microscaling Formats 1.0, 5.4.1). 255 is NaN; ggml and transformers
// read 2^128.
constexpr float e8m0_to_f32(uint8_t value) {
  if (value == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(value == 0 ? 0x400000U : uint32_t{value} << 23);
}

// Elements of F32, F16, BF16, or F8_E8M0 (powers of two).
class FloatView {
 public:
  explicit FloatView(const StoredTensor& tensor);
  float operator[](int64_t i) const;
  ScaleType type() const;  // exact for every element

 private:
  View<uint8_t> bytes_;
  std::optional<DType> dtype_;
};

// Unsigned integers of `bits` bits, lowest first; up to 8 bits, they may cross a byte boundary.
struct BitView {
  const std::byte* data;
  int bits;
  uint8_t operator[](int64_t i) const {
    const int64_t first = i * bits;
    const auto at = static_cast<size_t>(first / 8);
    const int shift = static_cast<int>(first % 8);
    auto value = static_cast<unsigned>(data[at]);
    if (shift + bits > 8) value |= static_cast<unsigned>(data[at + 1]) << 8;
    return static_cast<uint8_t>(value >> shift & ((1U << bits) - 1));
  }
};

struct Scale {
  float scale, minimum = 0;
};

// Both functions must be thread-safe and valid while the files exist.
struct GroupedWeight {
  int64_t rows, cols;
  DType width;  // kQ8 or kQ4
  Grouping grouping{};
  int64_t group = 0;  // inputs per scale, from a row's first input on; 0: inputs in no order
  std::function<void(int64_t row, uint8_t* codes)> codes{};
  std::function<Scale(int64_t row, int64_t col)> scale{};
  int64_t experts = 0;  // above 0: stacked experts of equal size
};

// Adds a weight under its plain name: quantized values with scales for Grouping's largest matching groups, or
// floats if none match. Shares the data of `main`.
void add_weight(const Quantized& quantized, const std::string& name, const StoredTensor& main,
                GroupedWeight weight);
// MXFP4: 4-bit floats, the first in the low half of a byte, and a power of two for each 32. Row r is row
// first_row + r * step of `main`, counted over experts if stacked.
void put_mxfp4(const Quantized& quantized, const std::string& name, const StoredTensor& main, bool stacked,
               const StoredTensor& scales, int64_t first_row = 0, int64_t step = 1);
// 8-bit floats or integers; scales, if any, per tensor, row, group of a row or block [rows, columns].
void put_scaled(const Quantized& quantized, const std::string& name, const StoredTensor& weight,
                const StoredTensor& scales, const std::optional<StoredTensor>& zeros,
                const std::vector<int64_t>& block);

void read_fp8(const Quantized& quantized);
void read_compressed_tensors(const Quantized& quantized);
void read_gptq(const Quantized& quantized);
void read_awq(const Quantized& quantized);
void read_mlx(const Quantized& quantized);
void read_modelopt(const Quantized& quantized);
void rename_mlx_experts(const Quantized& quantized);
void read_mxfp4(const Quantized& quantized);  // gpt-oss
void read_bitsandbytes(const Quantized& quantized);

}  // namespace lariat
