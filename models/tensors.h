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

// A tensor inside a mapped file of any format. It is read row by row; its rows are all dimensions but the
// last.
struct StoredTensor {
  std::string name;
  std::string dtype;           // as the file spells it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // empty: a scalar
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::filesystem::path file;
  // Makes the rows of a tensor that is not stored as its floats, row after row.
  std::shared_ptr<const HostWeight> reader{};
  bool quantized = false;  // the file holds codes, though the reader may make floats of them

  // The dtype of floats. Throws Error naming file and tensor for anything but F32, F16, BF16.
  DType float_dtype() const;
  WeightFormat form() const { return reader ? reader->m.form() : float_dtype(); }
  // All rows, in memory where there is no reader. Throws Error as float_dtype().
  HostWeight rows() const;
};

// A weight whose row r is row row_of(r) of the tensor.
HostWeight rows_of(const StoredTensor& tensor, int64_t rows, std::function<int64_t(int64_t)> row_of);
// A row in f32 whose element i is element index_of(i) of a vector, plus `plus`.
HostWeight elements_of(const StoredTensor& vector, int64_t count, std::function<int64_t(int64_t)> index_of,
                       float plus = 0);

// The tensors of a checkpoint by their names, and the files that they lie in. Whoever opens a file has
// checked it: a StoredTensor in hand lies inside its file and has the bytes of its shape.
class Tensors {
 public:
  // source: what errors about absent tensors name.
  explicit Tensors(std::filesystem::path source) : source_(std::move(source)) {}
  // Takes a mapped file and what lies in it. Throws Error naming a tensor that another file has as well.
  void add(MappedFile file, std::vector<StoredTensor> tensors);

  // A tensor that no longer stands among the others; nothing when absent. Its data stay where they are.
  std::optional<StoredTensor> take(const std::string& name);
  // Adds a tensor that was made of others. Throws Error when the name is taken.
  void put(StoredTensor tensor);

  const StoredTensor* find(const std::string& name) const;  // nullptr when absent
  // Throws Error naming file and tensor when it is absent or has another shape. Reads none of its data.
  const StoredTensor& check(const std::string& name, const std::vector<int64_t>& shape) const;
  // Checks likewise, and gives the data of floats on a multiple of an element's size: copied when the file
  // has them elsewhere.
  const StoredTensor& get(const std::string& name, const std::vector<int64_t>& shape) const;

  const std::filesystem::path& source() const { return source_; }
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  size_t bytes() const;  // of all files together
  // Brings the tensors of these names into memory, in the files' order, calling progress(bytes so far, bytes
  // of all of them). What a file holds besides them is not read.
  void populate(const std::set<std::string>& names,
                const std::function<void(size_t done, size_t total)>& progress) const;
  // The memory of a tensor, or of its bytes [first, last), that is not needed for now; reading it again reads
  // the file.
  void give_back(const StoredTensor& tensor) const { give_back(tensor, 0, tensor.bytes); }
  void give_back(const StoredTensor& tensor, size_t first, size_t last) const;

 private:
  void align(StoredTensor& tensor) const;
  // The offset of a tensor's data in a file; nothing for another file, or a copy.
  static std::optional<size_t> place_in(const MappedFile& file, const StoredTensor& tensor);
  std::filesystem::path source_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  // Both change when get() copies a tensor.
  mutable std::deque<std::vector<std::byte>> copies_;
  mutable std::map<std::string, StoredTensor> tensors_;
};

}  // namespace lariat
