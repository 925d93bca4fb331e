#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "models/tensors.h"

namespace lariat {

// Element type of a GGUF tensor. Elements are stored in blocks along a row; no block crosses rows.
struct GgufType {
  std::string_view name;
  uint32_t id;              // in the file
  int64_t elements, bytes;  // per block
};

// Types of files (ggml/include/ggml.h, ggml/src/ggml-common.h) by id, without types that ggml removed.
std::span<const GgufType> gguf_types();
const GgufType* find_gguf_type(uint32_t id);  // nullptr: unknown type
const GgufType* find_gguf_type(std::string_view name);

// Converts a tensor's blocks, of the type in its dtype, without loss and on demand; nullptr: floats. Throws
// Error naming file and tensor for an unsupported type or rows with a partial block.
std::shared_ptr<const HostWeight> gguf_codes(const StoredTensor& tensor);

}  // namespace lariat
