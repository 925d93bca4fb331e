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

#include "models/io/atomic_file.h"
#include "models/tensors.h"

namespace lariat {

inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{100} << 20;  // as in the reference implementation
// Bytes per element of a file's dtype; 0: unknown dtype.
size_t safetensors_element_bytes(const std::string& dtype);

// Tensors of a safetensors file in memory, pointing into `bytes`, with all checks of open_safetensors. `file`
// is named in errors. metadata: receives "__metadata__", whose values must be strings.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::filesystem::path& file,
                                            std::map<std::string, std::string>* metadata = nullptr);

// Shard files of a model.safetensors.index.json, each once, next to the index. Throws Error naming `file`.
std::set<std::string> parse_safetensors_index(std::string_view text, const std::filesystem::path& file);

// Weights of a folder: model.safetensors, or the shards of model.safetensors.index.json. Checks header
// length, JSON, dtypes, shapes, offsets and overlaps. Throws Error naming file, problem and remedy.
Tensors open_safetensors(const std::filesystem::path& dir);
// A single file of any name (test goldens, `lariat logits` output).
Tensors open_safetensors_file(const std::filesystem::path& file);

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";  // as in the file
};

// Parts of a safetensors file other than tensors.
struct SafetensorsLayout {
  std::map<std::string, std::string> metadata{};  // "__metadata__"
  size_t alignment = 8;                           // data start at a multiple of this
};

// Writes tensors to a safetensors file in order, atomically (AtomicFile). Throws Error naming the file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& file, const std::vector<NamedShape>& tensors,
                    const SafetensorsLayout& layout = {});

  // Appends data of all tensors, in order.
  void append(std::span<const std::byte> bytes);
  void append(std::span<const float> values) { append(std::as_bytes(values)); }
  // Throws if the appended bytes do not match the shapes. durable: see AtomicFile::commit.
  void finish(bool durable = false);

 private:
  std::string name_;
  AtomicFile file_;
  size_t expected_ = 0, written_ = 0;  // bytes
};

}  // namespace lariat
