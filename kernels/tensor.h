#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lariat {

// kQ8 and kQ4 are groups of integers with a scale, for the weights of Backend::linear (kernels/quant.h);
// cached values may be kQ8 too (KvLayer). Everything else is in one of the first three.
enum class DType : uint8_t { kF32, kF16, kBF16, kQ8, kQ4 };

constexpr bool is_quantized(DType dtype) { return dtype == DType::kQ8 || dtype == DType::kQ4; }

size_t size_of(DType dtype);               // bytes of one element; throws Error for a quantised dtype
std::string_view name_of(DType dtype);     // "f32", "f16", "bf16", "q8", "q4"
DType parse_dtype(std::string_view name);  // "f32", "f16" or "bf16"; throws UsageError on any other word

// A non-owning row-major matrix in the backend's memory: row r starts at data + r * stride elements.
// A vector is a matrix of one row. A quantised matrix is one block of memory without rows that could be taken
// out of it; its stride means nothing.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0, stride = 0;

  Matrix() = default;
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_)
      : Matrix(data_, dtype_, rows_, cols_, cols_) {}
  Matrix(void* data_, DType dtype_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}

  explicit operator bool() const { return data != nullptr; }

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
