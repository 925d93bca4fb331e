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

// A tensor in a mapped file of any format. Rows are all dimensions but the last.
struct StoredTensor {
  std::string name;
  std::string dtype;           // "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // empty: a scalar
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::filesystem::path file;
  // Converts rows; nullptr: plain floats.
  std::shared_ptr<const HostWeight> reader{};
  bool quantized = false;  // in the file, even if the reader returns floats

  // Throws Error for anything but F32, F16, BF16.
  DType float_dtype() const;
  WeightFormat format() const { return reader ? reader->m.format() : float_dtype(); }
  // Throws Error like float_dtype().
  HostWeight rows() const;
};

// Row r is row row_of(r) of the tensor.
HostWeight rows_of(const StoredTensor& tensor, int64_t rows, std::function<int64_t(int64_t)> row_of);
// An f32 row: element i is element index_of(i) of a vector, plus `plus`.
HostWeight elements_of(const StoredTensor& vector, int64_t count, std::function<int64_t(int64_t)> index_of,
                       float plus = 0);

// Tensors of a checkpoint, and their files: a tensor's data lie in the file and match its shape.
class Tensors {
 public:
  // source: path in errors about missing tensors.
  explicit Tensors(std::filesystem::path source) : source_(std::move(source)) {}
  // Throws Error for a tensor of two files.
  void add(MappedFile file, std::vector<StoredTensor> tensors);

  // nullopt: missing. The tensor's data stay in memory.
  std::optional<StoredTensor> take(const std::string& name);
  // Throws Error if the name exists.
  void put(StoredTensor tensor);

  const StoredTensor* find(const std::string& name) const;  // nullptr: missing
  // Throws Error if missing or of another shape; a scalar has shape [1]. Reads no data.
  const StoredTensor& check(const std::string& name, const std::vector<int64_t>& shape) const;
  // Like check(), with floats aligned to their size: unaligned data are copied.
  const StoredTensor& get(const std::string& name, const std::vector<int64_t>& shape) const;

  const std::filesystem::path& source() const { return source_; }
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  size_t bytes() const;  // of all files
  // Loads the named tensors into memory, in file order.
  void populate(const std::set<std::string>& names,
                const std::function<void(size_t done, size_t total)>& progress) const;
  // Releases the memory of bytes [first, last) of a tensor; a later read reads the file again.
  void release_pages(const StoredTensor& tensor) const { release_pages(tensor, 0, tensor.bytes); }
  void release_pages(const StoredTensor& tensor, size_t first, size_t last) const;

 private:
  void align(StoredTensor& tensor) const;
  // nullopt: another file or a copy.
  static std::optional<size_t> place_in(const MappedFile& file, const StoredTensor& tensor);
  std::filesystem::path source_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  // get() changes both when it copies a tensor.
  mutable std::deque<std::vector<std::byte>> copies_;
  mutable std::map<std::string, StoredTensor> tensors_;
};

}  // namespace lariat
