#include "kernels/tensor.h"

#include "kernels/error.h"

namespace lariat {

size_t size_of(DType dtype) {
  if (is_quantized(dtype)) throw Error(std::string(name_of(dtype)) + ": size_of needs a float dtype");
  return dtype == DType::kF32 ? 4 : 2;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kQ8:
      return "q8";
    case DType::kQ4:
      return "q4";
  }
  return "?";
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw UsageError("unknown dtype '" + std::string(name) + "'; use f32, f16 or bf16");
}

}  // namespace lariat
