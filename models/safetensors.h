#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"
#include "models/io/atomic_file.h"
#include "models/io/mapped_file.h"

namespace lariat {

inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{100} << 20;  // as the reference implementation
// The bytes of an element of a dtype as files spell it; 0 for one that does not exist.
size_t safetensors_element_bytes(const std::string& dtype);

// A tensor inside a mapped safetensors file.
struct StoredTensor {
  std::string name;
  std::string dtype;           // as the file spells it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // empty: a scalar
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::filesystem::path file;

  // The dtype as lariat computes with it. Throws Error naming file and tensor for anything but F32, F16,
  // BF16.
  DType float_dtype() const;
};

// The tensors of a safetensors file in memory; they point into `bytes`. `file` is what errors name.
// Everything is checked as Checkpoint says. metadata: takes what stands under "__metadata__", whose values
// must be texts.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::filesystem::path& file,
                                            std::map<std::string, std::string>* metadata = nullptr);

// The shard files that a model.safetensors.index.json names, each once. Throws Error naming `file`; a shard
// must lie beside its index.
std::set<std::string> parse_safetensors_index(std::string_view text, const std::filesystem::path& file);

// The weights of a checkpoint folder: model.safetensors, or the shards of model.safetensors.index.json.
// Files are untrusted: header length, JSON, dtypes, shapes, offsets and overlaps are all checked when opened,
// so that a StoredTensor in hand lies inside its file and has bytes == product(shape) * element size.
class Checkpoint {
 public:
  // Throws Error naming the file, what is wrong and what to do.
  static Checkpoint open(const std::filesystem::path& dir);
  // A single file of any name (test goldens, `lariat logits` output).
  static Checkpoint open_file(const std::filesystem::path& file);

  const StoredTensor* find(const std::string& name) const;  // nullptr when absent
  // Throws Error naming file and tensor when it is absent or has another shape. Reads none of its data.
  const StoredTensor& check(const std::string& name, const std::vector<int64_t>& shape) const;
  // Checks likewise, and gives its data on a multiple of its element's size: copied when the file has it
  // elsewhere.
  const StoredTensor& get(const std::string& name, const std::vector<int64_t>& shape) const;

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  size_t bytes() const;  // of all files together
  // Brings the tensors of these names into memory, in the files' order, calling progress(bytes so far, bytes
  // of all of them). What a file holds besides them is not read.
  void populate(const std::set<std::string>& names,
                const std::function<void(size_t done, size_t total)>& progress) const;
  // The memory of a tensor that is not needed for now; reading it again reads the file.
  void give_back(const StoredTensor& tensor) const;

 private:
  void add_file(const std::filesystem::path& file);
  void align(StoredTensor& tensor) const;
  // The offset of a tensor's data in a file; nothing for another file, or a copy.
  static std::optional<size_t> place_in(const MappedFile& file, const StoredTensor& tensor);
  std::filesystem::path source_;  // what errors about absent tensors name
  std::vector<std::unique_ptr<MappedFile>> files_;
  // Both change when get() copies a tensor.
  mutable std::deque<std::vector<std::byte>> aligned_copies_;
  mutable std::map<std::string, StoredTensor> tensors_;
};

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
