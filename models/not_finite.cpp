#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "models/weights.h"

namespace lariat {
namespace {

// NaN and infinity have every bit of the exponent set. The file may hold its elements on any byte.
template <class Bits>
int64_t count_not_finite(const StoredTensor& tensor, Bits exponent) {
  int64_t count = 0;
  for (size_t at = 0; at + sizeof(Bits) <= tensor.bytes; at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, tensor.data + at, sizeof bits);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

int64_t count_not_finite(const HostWeight& codes) {
  std::atomic<int64_t> count = 0;
  for_ranges(cores(), codes.m.rows, 16, [&](int64_t first, int64_t last) {
    std::vector<float> values(static_cast<size_t>(codes.m.cols));
    for (int64_t row = first; row < last; ++row) {
      read_floats(codes, row, Matrix(values.data(), DType::kF32, 1, codes.m.cols));
      count += std::ranges::count_if(values, [](float value) { return !std::isfinite(value); });
    }
  });
  return count;
}

}  // namespace

std::optional<NotFinite> find_not_finite(const Tensors& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.all()) {
    if (name.ends_with(".attention.masked_bias")) continue;  // of old GPT-NeoX files: -inf in f16, and unread
    int64_t found = 0, of = static_cast<int64_t>(tensor.bytes / 2);
    if (tensor.codes) {
      found = count_not_finite(*tensor.codes);
      of = tensor.codes->m.rows * tensor.codes->m.cols;
    } else if (tensor.dtype == "F32") {
      found = count_not_finite<uint32_t>(tensor, 0x7F800000U);
      of /= 2;
    } else if (tensor.dtype == "BF16") {
      found = count_not_finite<uint16_t>(tensor, 0x7F80U);
    } else if (tensor.dtype == "F16") {
      found = count_not_finite<uint16_t>(tensor, 0x7C00U);
    }
    if (found > 0) return NotFinite{name, tensor.file, found, of};
  }
  return std::nullopt;
}

}  // namespace lariat
