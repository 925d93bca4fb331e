#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "models/files/tensors.h"

namespace lariat {

// Element type of a GGUF tensor. No block crosses rows.
struct GgufType {
  std::string_view name;
  uint32_t id;
  int64_t elements, bytes;  // per block
};

// Types of ggml/include/ggml.h that ggml still has.
std::span<const GgufType> gguf_types();
const GgufType* find_gguf_type(uint32_t id);  // nullptr: unknown
const GgufType* find_gguf_type(std::string_view name);

// Decodes blocks without loss, on demand; nullptr: floats. Throws Error for an unsupported type or rows with
// a partial block.
std::shared_ptr<const HostWeight> gguf_codes(const StoredTensor& tensor);

}  // namespace lariat
