#include "models/files/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/error.h"

namespace lariat {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

DType StoredTensor::float_dtype() const {
  if (dtype == "F32") return DType::kF32;
  if (dtype == "F16") return DType::kF16;
  if (dtype == "BF16") return DType::kBF16;
  throw Error(fmt::format("{}: tensor '{}' is {}; use F32, F16 or BF16 weights", file.string(), name, dtype));
}

HostWeight StoredTensor::rows() const {
  if (reader) return *reader;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return Matrix(const_cast<std::byte*>(data), float_dtype(), rows, shape.empty() ? 1 : shape.back());
}

HostWeight rows_of(const StoredTensor& tensor, int64_t rows, std::function<int64_t(int64_t)> row_of) {
  const HostWeight all = tensor.rows();
  const auto read = [all, row_of = std::move(row_of)](int64_t row, const CodeRow& to) {
    if (all.read_row) return all.read_row(row_of(row), to);
    std::memcpy(to.codes, all.m.row_range(row_of(row), 1).data,
                static_cast<size_t>(all.m.cols) * size_of(all.m.dtype));
  };
  return {all.m.format(), rows, all.m.cols, read};
}

HostWeight elements_of(const StoredTensor& vector, int64_t count, std::function<int64_t(int64_t)> index_of,
                       float plus) {
  const auto read = [all = vector.rows(), count, index_of = std::move(index_of), plus](int64_t row,
                                                                                       const CodeRow& to) {
    std::vector<float> values(static_cast<size_t>(all.m.cols));
    read_floats(all, row, {values.data(), DType::kF32, 1, all.m.cols});
    for (int64_t i = 0; i < count; ++i) {
      const float value = values[static_cast<size_t>(index_of(i))];
      store_f32(to.codes, DType::kF32, i, plus == 0 ? value : value + plus);
    }
  };
  return {DType::kF32, 1, count, read};
}

void Tensors::add(MappedFile file, std::vector<StoredTensor> tensors) {
  files_.push_back(std::make_unique<MappedFile>(std::move(file)));
  for (StoredTensor& tensor : tensors) {
    const auto [place, inserted] = tensors_.emplace(tensor.name, tensor);
    if (!inserted) {
      throw Error(fmt::format("{}: tensor '{:.200}' is also in {}; remove one of the files",
                              tensor.file.string(), tensor.name, place->second.file.string()));
    }
  }
}

std::optional<StoredTensor> Tensors::take(const std::string& name) {
  auto node = tensors_.extract(name);
  return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
}

void Tensors::put(StoredTensor tensor) {
  const auto [place, inserted] = tensors_.emplace(tensor.name, tensor);
  if (!inserted)
    throw Error(
        fmt::format("{}: tensor '{:.200}' is stored twice, quantised and not; the checkpoint is "
                    "damaged, download it again",
                    tensor.file.string(), tensor.name));
}

// Old files may have unaligned data; vector loads need aligned elements.
void Tensors::align(StoredTensor& tensor) const {
  size_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= static_cast<size_t>(size);
  if (tensor.reader || elements == 0 || tensor.bytes < elements) return;
  if (reinterpret_cast<uintptr_t>(tensor.data) % (tensor.bytes / elements) == 0) return;
  auto& copy = copies_.emplace_back(tensor.data, tensor.data + tensor.bytes);
  tensor.data = copy.data();
}

const StoredTensor* Tensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const StoredTensor& Tensors::get(const std::string& name, const std::vector<int64_t>& shape) const {
  const StoredTensor& tensor = check(name, shape);
  align(tensors_.at(name));
  return tensor;
}

const StoredTensor& Tensors::check(const std::string& name, const std::vector<int64_t>& shape) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    throw Error(
        fmt::format("{}: tensor '{}' is missing; use a matching config, or download the weights again",
                    source_.string(), name));
  }
  const bool scalar = tensor->shape.empty() && shape == std::vector<int64_t>{1};
  if (tensor->shape != shape && !scalar) {
    throw Error(fmt::format("{}: tensor '{}' has shape {}, but the config needs {}; use a matching config",
                            tensor->file.string(), name, shape_text(tensor->shape), shape_text(shape)));
  }
  return *tensor;
}

size_t Tensors::bytes() const {
  size_t total = 0;
  for (const auto& file : files_) total += file->size();
  return total;
}

std::optional<size_t> Tensors::place_in(const MappedFile& file, const StoredTensor& tensor) {
  const bool inside = tensor.data >= file.data() && tensor.data < file.data() + file.size();
  if (!inside) return std::nullopt;
  return static_cast<size_t>(tensor.data - file.data());
}

void Tensors::release_pages(const StoredTensor& tensor, size_t first, size_t last) const {
  for (const auto& file : files_) {
    if (const auto begin = place_in(*file, tensor)) file->release_pages(*begin + first, *begin + last);
  }
}

void Tensors::populate(const std::set<std::string>& names,
                       const std::function<void(size_t done, size_t total)>& progress) const {
  constexpr size_t kGap = size_t{1} << 20;  // reading small gaps is cheaper than a new range
  struct Range {
    const MappedFile* file;
    size_t begin, end;
  };
  std::vector<Range> ranges;
  size_t total = 0, before = 0;
  for (const auto& file : files_) {
    std::vector<Range> own;
    for (const auto& [name, tensor] : tensors_) {
      const std::optional<size_t> begin = place_in(*file, tensor);
      if (begin && names.contains(name)) own.push_back({file.get(), *begin, *begin + tensor.bytes});
    }
    std::sort(own.begin(), own.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (const Range& range : own) {
      const bool near =
          !ranges.empty() && ranges.back().file == range.file && range.begin <= ranges.back().end + kGap;
      if (near) {
        ranges.back().end = range.end;
      } else {
        ranges.push_back(range);
      }
    }
  }
  for (const Range& range : ranges) total += range.end - range.begin;
  for (const Range& range : ranges) {
    range.file->populate(range.begin, range.end, [&](size_t done) { progress(before + done, total); });
    before += range.end - range.begin;
  }
}

}  // namespace lariat
