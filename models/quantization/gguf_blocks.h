#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "models/tensors.h"

namespace lariat {

// A type of a GGUF tensor's elements. They lie in blocks along a row, which has no part of one.
struct GgufType {
  std::string_view name;
  uint32_t id;              // in the file
  int64_t elements, bytes;  // of a block
};

// The types that files may have (ggml/include/ggml.h, ggml/src/ggml-common.h), in the order of their ids.
// Those that ggml has removed are not among them.
std::span<const GgufType> gguf_types();
const GgufType* find_gguf_type(uint32_t id);  // nullptr: there is no such type
const GgufType* find_gguf_type(std::string_view name);

// What the blocks of a tensor, whose dtype is the name of its type, are made into, without loss; nullptr for
// floats. The data are read when the codes are. Throws Error naming file and tensor for a type
// that lariat does not run, and for rows that are not whole blocks.
std::shared_ptr<const HostWeight> gguf_codes(const StoredTensor& tensor);

}  // namespace lariat
