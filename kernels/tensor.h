#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/grouping.h"

namespace lariat {

// Storage type of a number. kQ8 and kQ4 are quantized weights of Backend::linear with shared scales
// (kernels/quant.h); cached values may be kQ8 too (KvLayer).
enum class DType : uint8_t { kF32, kF16, kBF16, kQ8, kQ4 };

constexpr bool is_quantized(DType dtype) { return dtype == DType::kQ8 || dtype == DType::kQ4; }

size_t size_of(DType dtype);               // bytes of one element; throws Error for a quantized dtype
std::string_view name_of(DType dtype);     // "f32", "f16", "bf16", "q8", "q4"
DType parse_dtype(std::string_view name);  // "f32", "f16" or "bf16"; throws UsageError on any other word

struct WeightFormat {
  DType dtype = DType::kF32;
  Grouping grouping{};

  WeightFormat() = default;
  WeightFormat(DType dtype_, Grouping grouping_ = {})
      : dtype(dtype_), grouping(grouping_) {}  // NOLINT: the usual one
  bool operator==(const WeightFormat&) const = default;

  // Format with each narrow code in a whole q4 or q8 code.
  WeightFormat widened() const {
    WeightFormat wide = *this;
    wide.grouping.narrow |= grouping.bits > 4;
    wide.grouping.bits = 0;
    return wide;
  }
};

// Rows and columns of a block of Matrix::tiled; the last blocks are padded with zeros.
inline constexpr int64_t kTiledBlock = 32;

// Non-owning row-major matrix in backend memory: row r starts at data + r * stride elements. A quantized
// matrix is one opaque block, without row access or stride.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Grouping grouping{};  // quantized matrices only
  bool tiled = false;   // bf16 in AMX tile order (kernels/cpu/amx_pack.h), without row access
  int64_t rows = 0, cols = 0, stride = 0;

  Matrix() = default;
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_)
      : Matrix(data_, dtype_, rows_, cols_, cols_) {}
  Matrix(void* data_, const WeightFormat& format, int64_t rows_, int64_t cols_)
      : Matrix(data_, format.dtype, rows_, cols_) {
    grouping = format.grouping;
  }
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}

  explicit operator bool() const { return data != nullptr; }
  WeightFormat format() const { return {dtype, grouping}; }

  // Rows [first, first + count), sharing the storage.
  Matrix row_range(int64_t first, int64_t count) const {
    return {static_cast<char*>(data) + first * stride * static_cast<int64_t>(size_of(dtype)), dtype, count,
            cols, stride};
  }
  Matrix column_range(int64_t first, int64_t count) const {
    return {static_cast<char*>(data) + first * static_cast<int64_t>(size_of(dtype)), dtype, rows, count,
            stride};
  }
  // Row r of an f32 matrix in host memory.
  float* f32(int64_t r = 0) const { return static_cast<float*>(data) + r * stride; }
};

}  // namespace lariat
