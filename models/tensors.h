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
#include <string>
#include <vector>

#include "kernels/host_weight.h"
#include "kernels/tensor.h"
#include "models/io/mapped_file.h"

namespace lariat {

std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"

// A tensor in a mapped file of any format, read row by row: rows are all dimensions but the last.
struct StoredTensor {
  std::string name;
  std::string dtype;           // as in the file: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // empty: a scalar
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::filesystem::path file;
  // Converts rows of a tensor not stored as plain floats.
  std::shared_ptr<const HostWeight> reader{};
  bool quantized = false;  // the file holds quantized values, even if the reader returns floats

  // Dtype of stored floats. Throws Error naming file and tensor for anything but F32, F16, BF16.
  DType float_dtype() const;
  WeightFormat form() const { return reader ? reader->m.form() : float_dtype(); }
  // All rows, in memory unless there is a reader. Throws Error like float_dtype().
  HostWeight rows() const;
};

// A weight: its row r is row row_of(r) of the tensor.
HostWeight rows_of(const StoredTensor& tensor, int64_t rows, std::function<int64_t(int64_t)> row_of);
// An f32 row: its element i is element index_of(i) of a vector, plus `plus`.
HostWeight elements_of(const StoredTensor& vector, int64_t count, std::function<int64_t(int64_t)> index_of,
                       float plus = 0);

// Tensors of a checkpoint by name, and their files. Each StoredTensor is validated on opening: its data lie
// in the file and match its shape.
class Tensors {
 public:
  // source: path named in errors about missing tensors.
  explicit Tensors(std::filesystem::path source) : source_(std::move(source)) {}
  // Adds a mapped file and its tensors. Throws Error naming a tensor of two files.
  void add(MappedFile file, std::vector<StoredTensor> tensors);

  // Removes and returns a tensor; nothing if missing. Its data stay in memory.
  std::optional<StoredTensor> take(const std::string& name);
  // Adds a tensor computed from others. Throws Error if the name exists.
  void put(StoredTensor tensor);

  const StoredTensor* find(const std::string& name) const;  // nullptr: missing
  // Throws Error naming file and tensor if missing or of another shape. Reads no data.
  const StoredTensor& check(const std::string& name, const std::vector<int64_t>& shape) const;
  // Like check(), with floats aligned to their size: unaligned data are copied.
  const StoredTensor& get(const std::string& name, const std::vector<int64_t>& shape) const;

  const std::filesystem::path& source() const { return source_; }
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  size_t bytes() const;  // of all files
  // Loads the named tensors into memory in file order, calling progress(bytes so far, total bytes). Other
  // parts of the files are not read.
  void populate(const std::set<std::string>& names,
                const std::function<void(size_t done, size_t total)>& progress) const;
  // Releases the memory of a tensor or of its bytes [first, last); a later read reads the file again.
  void give_back(const StoredTensor& tensor) const { give_back(tensor, 0, tensor.bytes); }
  void give_back(const StoredTensor& tensor, size_t first, size_t last) const;

 private:
  void align(StoredTensor& tensor) const;
  // Offset of a tensor's data in a file; nothing: another file or a copy.
  static std::optional<size_t> place_in(const MappedFile& file, const StoredTensor& tensor);
  std::filesystem::path source_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  // get() changes both when it copies a tensor.
  mutable std::deque<std::vector<std::byte>> copies_;
  mutable std::map<std::string, StoredTensor> tensors_;
};

}  // namespace lariat
