#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/tensors.h"

// GGUF: ggml-org/ggml, docs/gguf.md.
namespace lariat {

enum class GgufKind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

struct GgufValue {
  GgufKind kind;  // of an array: type of its elements
  bool array = false;
  uint64_t count = 1;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// All contents point into the parsed bytes.
struct GgufFile {
  std::filesystem::path path;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<StoredTensor> tensors;  // by GGUF's names

  mutable std::set<std::string, std::less<>> read_keys{};  // so far; several threads read one file

  void mark_read(std::string_view key) const;
  bool was_read(std::string_view key) const;
  bool has(std::string_view key) const { return mark_read(key), metadata.contains(key); }
  // Return nullopt without the key. Throw Error for another kind. Integers may have any width, numbers may be
  // integers, booleans may be 1 or 0.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  // One value or an array.
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;

  const StoredTensor* tensor(std::string_view name) const;  // nullptr: missing
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
};

bool is_gguf(const std::filesystem::path& path);  // by file extension or first bytes

// Parses an untrusted file: counts, lengths, types, shapes, offsets and overlaps are checked before any
// allocation. Throws Error.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::filesystem::path& path);

}  // namespace lariat
