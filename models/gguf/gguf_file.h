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

#include "models/tensors.h"

// The container that llama.cpp keeps models in (ggml-org/ggml, docs/gguf.md): metadata by dotted keys, a list
// of tensors, and their data.
namespace lariat {

// The types of metadata.
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

// A value of the metadata as it lies in the file, which holds all of it.
struct GgufValue {
  GgufKind kind;  // of an array: of its elements
  bool array = false;
  uint64_t count = 1;
  const std::byte* data = nullptr;
};

// Everything in it points into the bytes that it was parsed from.
struct GgufFile {
  std::filesystem::path path;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<StoredTensor> tensors;  // by GGUF's names; shapes are [rows, columns] as in safetensors

  mutable std::set<std::string, std::less<>> asked;  // the keys that the functions below were asked for

  bool has(std::string_view key) const { return asked.emplace(key), metadata.contains(key); }
  // A value by its key; nothing where there is none. Throws Error naming file and key for one of another
  // kind; integers may be of any width, numbers integers, and true or false 1 or 0.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  // A value, or an array of them.
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;

  const StoredTensor* tensor(std::string_view name) const;  // nullptr: none
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
};

bool is_gguf(const std::filesystem::path& path);  // by its name, or as it begins

// Files are untrusted: counts, lengths, types, shapes, offsets and overlaps are all checked here, before
// memory is asked for. Throws Error naming `path`, what is wrong and what to do.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::filesystem::path& path);

}  // namespace lariat
