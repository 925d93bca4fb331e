#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/tensors.h"
#include "models/io/atomic_file.h"

namespace lariat {

inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{100} << 20;  // as in the reference implementation
// Bytes per element; 0: unknown dtype.
size_t safetensors_element_bytes(const std::string& dtype);

// Tensors point into `bytes`. file: for errors. metadata: receives "__metadata__". Throws Error like
// open_safetensors.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::filesystem::path& file,
                                            std::map<std::string, std::string>* metadata = nullptr);

// Shard files of a model.safetensors.index.json, each once, in its folder or below. Throws Error.
std::set<std::string> parse_safetensors_index(std::string_view text, const std::filesystem::path& file);
std::set<std::string> read_safetensors_index(const std::filesystem::path& file);

// Loads model.safetensors or the shards of model.safetensors.index.json. Checks header length, JSON, dtypes,
// shapes, offsets and overlaps. Throws Error.
Tensors open_safetensors(const std::filesystem::path& dir);
// Opens a single file of any name.
Tensors open_safetensors_file(const std::filesystem::path& file);

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
};

struct SafetensorsLayout {
  std::map<std::string, std::string> metadata{};
  size_t alignment = 8;  // of the data, in bytes
};

// Writes a safetensors file atomically (AtomicFile). Throws Error.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& file, const std::vector<NamedShape>& tensors,
                    const SafetensorsLayout& layout = {});

  void append(std::span<const std::byte> bytes);
  void append(std::span<const float> values) { append(std::as_bytes(values)); }
  // Throws Error if the appended bytes do not match the shapes. durable: see AtomicFile::commit.
  void finish(bool durable = false);

 private:
  std::string name_;
  AtomicFile file_;
  size_t expected_ = 0, written_ = 0;
};

}  // namespace lariat
