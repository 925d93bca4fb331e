#include <cstring>

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

}  // namespace

std::optional<NotFinite> find_not_finite(const Tensors& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.all()) {
    if (tensor.codes) continue;  // their bytes are no floats, whatever the file calls them
    if (name.ends_with(".attention.masked_bias")) continue;  // of old GPT-NeoX files: -inf in f16, and unread
    int64_t found = 0;
    size_t element = 2;
    if (tensor.dtype == "F32") {
      found = count_not_finite<uint32_t>(tensor, 0x7F800000U);
      element = 4;
    } else if (tensor.dtype == "BF16") {
      found = count_not_finite<uint16_t>(tensor, 0x7F80U);
    } else if (tensor.dtype == "F16") {
      found = count_not_finite<uint16_t>(tensor, 0x7C00U);
    }
    if (found > 0) return NotFinite{name, tensor.file, found, static_cast<int64_t>(tensor.bytes / element)};
  }
  return std::nullopt;
}

}  // namespace lariat
