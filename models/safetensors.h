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

inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{100} << 20;  // as the reference implementation
// The bytes of an element of a dtype as files spell it; 0 for one that does not exist.
size_t safetensors_element_bytes(const std::string& dtype);

// The tensors of a safetensors file in memory; they point into `bytes`. `file` is what errors name.
// Everything is checked as open_safetensors says. metadata: takes what stands under "__metadata__", whose
// values must be texts.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::filesystem::path& file,
                                            std::map<std::string, std::string>* metadata = nullptr);

// The shard files that a model.safetensors.index.json names, each once. Throws Error naming `file`; a shard
// must lie beside its index.
std::set<std::string> parse_safetensors_index(std::string_view text, const std::filesystem::path& file);

// The weights of a folder: model.safetensors, or the shards of model.safetensors.index.json. Files are
// untrusted: header length, JSON, dtypes, shapes, offsets and overlaps are all checked when opened. Throws
// Error naming the file, what is wrong and what to do.
Tensors open_safetensors(const std::filesystem::path& dir);
// A single file of any name (test goldens, `lariat logits` output).
Tensors open_safetensors_file(const std::filesystem::path& file);

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";  // as the file spells it
};

// The parts of a safetensors file that are not its tensors.
struct SafetensorsLayout {
  std::map<std::string, std::string> metadata{};  // "__metadata__"
  size_t alignment = 8;                           // the data begin at a multiple of it
};

// Writes tensors to a safetensors file, in the order in which they are named; the file appears whole or not
// at all (AtomicFile). Throws Error naming the file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& file, const std::vector<NamedShape>& tensors,
                    const SafetensorsLayout& layout = {});

  // The data of all tensors, one after the other.
  void append(std::span<const std::byte> bytes);
  void append(std::span<const float> values) { append(std::as_bytes(values)); }
  // Throws when fewer or more bytes than the shapes hold were appended. durable: as AtomicFile::commit.
  void finish(bool durable = false);

 private:
  std::string name_;
  AtomicFile file_;
  size_t expected_ = 0, written_ = 0;  // bytes
};

}  // namespace lariat
