#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/grouping.h"

namespace lariat {

// The width of a number. kQ8 and kQ4 are codes of 8 and 4 bits that share scales, for the weights of
// Backend::linear (kernels/quant.h); cached values may be kQ8 too (KvLayer). Everything else is in one of the
// first three.
enum class DType : uint8_t { kF32, kF16, kBF16, kQ8, kQ4 };

constexpr bool is_quantized(DType dtype) { return dtype == DType::kQ8 || dtype == DType::kQ4; }

size_t size_of(DType dtype);               // bytes of one element; throws Error for a quantised dtype
std::string_view name_of(DType dtype);     // "f32", "f16", "bf16", "q8", "q4"
DType parse_dtype(std::string_view name);  // "f32", "f16" or "bf16"; throws UsageError on any other word

// How the numbers of a matrix are stored. The grouping of floats means nothing.
struct WeightFormat {
  DType dtype = DType::kF32;
  Grouping grouping{};

  WeightFormat() = default;
  WeightFormat(DType dtype_, Grouping grouping_ = {})
      : dtype(dtype_), grouping(grouping_) {}  // NOLINT: the usual one
  bool operator==(const WeightFormat&) const = default;
};

// Rows and columns of a block of a tiled matrix (Matrix::tiled); it has whole blocks, filled up with zeros.
inline constexpr int64_t kTiledBlock = 32;

// A non-owning row-major matrix in the backend's memory: row r starts at data + r * stride elements.
// A vector is a matrix of one row. A quantised matrix is one block of memory without rows that could be taken
// out of it; its stride means nothing.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Grouping grouping{};  // of a quantised matrix
  bool tiled = false;   // bf16 in the order of AMX tiles (kernels/cpu/amx_pack.h), without rows either
  int64_t rows = 0, cols = 0, stride = 0;

  Matrix() = default;
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_)
      : Matrix(data_, dtype_, rows_, cols_, cols_) {}
  Matrix(void* data_, const WeightFormat& form, int64_t rows_, int64_t cols_)
      : Matrix(data_, form.dtype, rows_, cols_) {
    grouping = form.grouping;
  }
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}

  explicit operator bool() const { return data != nullptr; }
  WeightFormat form() const { return {dtype, grouping}; }

  // Rows [first, first + count), sharing the storage.
  Matrix row_range(int64_t first, int64_t count) const {
    return {static_cast<char*>(data) + first * stride * static_cast<int64_t>(size_of(dtype)), dtype, count,
            cols, stride};
  }
  // Columns [first, first + count), sharing the storage.
  Matrix column_range(int64_t first, int64_t count) const {
    return {static_cast<char*>(data) + first * static_cast<int64_t>(size_of(dtype)), dtype, rows, count,
            stride};
  }
  // Row r of a matrix that the caller knows to be f32 in host memory.
  float* f32(int64_t r = 0) const { return static_cast<float*>(data) + r * stride; }
};

}  // namespace lariat
