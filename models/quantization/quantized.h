#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/io/json_fields.h"
#include "models/tensors.h"

// What the readers of methods share.
namespace lariat {

// A checkpoint on its way from the parts that a method stores to plain names.
struct Quantized {
  std::string method;
  JsonFields config;  // the method's settings
  Tensors& tensors;
  std::vector<std::string>& warnings;

  // What stands before `end` in the names of all tensors that end so, and are of one of the dtypes, if any.
  std::vector<std::string> modules(std::string_view end, std::string_view dtypes = "") const;
  // A part of a module's weight, out of the tensors. dtypes: those that it may have, with a space between
  // them.
  std::optional<StoredTensor> take(const std::string& name, std::string_view dtypes) const;
  StoredTensor need(const std::string& module, std::string_view end, std::string_view dtypes) const;
  [[noreturn]] void refuse(const StoredTensor& tensor, const std::string& what) const;
  // Throws Error unless the tensor has this shape.
  void check_shape(const StoredTensor& tensor, const std::vector<int64_t>& shape) const;
  // Throws Error unless it is a matrix that holds something.
  void check_matrix(const StoredTensor& tensor) const;
  // The inputs that share a scale, when `in` have this many: the first that fits of those the config gives,
  // or equal shares.
  int64_t group_size(const StoredTensor& scales, int64_t in, int64_t groups,
                     std::span<const int64_t> given) const;
  // The group of each input as X.g_idx, which may be absent, has them; nothing where that is what it would be
  // without it, in order. -1 everywhere says that there are none.
  std::vector<int32_t> unsorted_groups(const std::string& g_idx, int64_t in, int64_t groups,
                                       int64_t group) const;
};

// Elements of a tensor, which may begin on any byte.
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

// Numbers of F32, F16, BF16, or F8_E8M0: powers of two.
class FloatView {
 public:
  explicit FloatView(const StoredTensor& tensor);
  float operator[](int64_t i) const;
  ScaleType type() const;  // as which each is exact

 private:
  View<uint8_t> bytes_;
  std::optional<DType> dtype_;
};

// Unsigned integers of some bits, the first in the lowest, in which up to 8 bits may lie across two bytes.
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

// A weight as its method describes it. Both functions must outlive everything but the files, and are called
// by several threads.
struct GroupedWeight {
  int64_t rows, cols;
  DType width;  // kQ8 or kQ4
  Grouping grouping{};
  int64_t group = 0;  // from a row's first input on, each run of so many shares a scale; 0: no run does
  std::function<void(int64_t row, uint8_t* codes)> codes{};
  std::function<Scale(int64_t row, int64_t col)> scale{};
  int64_t experts = 0;  // above 0: of stacked experts, with the same number of rows each
};

// Puts a weight under its plain name: as codes with scales for the largest groups that Grouping has, or,
// where it has none such, as floats. Its data are those of `main`.
void add_weight(const Quantized& quantized, const std::string& name, const StoredTensor& main,
                GroupedWeight weight);
// MXFP4: 4-bit floats, the first in the low half of a byte, and for each 32 a power of two. Row r is row
// first_row + r * step of `main`, first_row < step, whose rows are its first dimension or, of stacked
// experts, its first two.
void put_mxfp4(const Quantized& quantized, const std::string& name, const StoredTensor& main, bool stacked,
               const StoredTensor& scales, int64_t first_row = 0, int64_t step = 1);
// 8-bit floats or integers with scales for all, rows, groups of a row or blocks [rows, columns], if any.
void put_scaled(const Quantized& quantized, const std::string& name, const StoredTensor& weight,
                const StoredTensor& scales, const std::optional<StoredTensor>& zeros,
                const std::vector<int64_t>& block);

void read_fp8(const Quantized& quantized);
void read_compressed_tensors(const Quantized& quantized);
void read_gptq(const Quantized& quantized);
void read_awq(const Quantized& quantized);
void read_mlx(const Quantized& quantized);
void read_modelopt(const Quantized& quantized);
// Gives stacked float experts of MLX the names that all stacks have here: X.experts.gate_proj.weight.
void rename_mlx_experts(const Quantized& quantized);
void read_mxfp4(const Quantized& quantized);  // gpt-oss's
void read_bitsandbytes(const Quantized& quantized);

}  // namespace lariat
