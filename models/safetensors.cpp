// Format: https://github.com/huggingface/safetensors - 8 bytes of header length (little endian), a JSON
// header
// {"name": {"dtype", "shape", "data_offsets": [begin, end)}}, then the data.
#include "models/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/error.h"
#include "models/json_file.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;  // the limit the reference implementation sets
constexpr size_t kMaxRank = 8;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

size_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, size_t> kSizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  const auto found = kSizes.find(dtype);
  return found == kSizes.end() ? 0 : found->second;
}

std::vector<int64_t> parse_shape(const nlohmann::json& entry, const std::string& where) {
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxRank) {
    throw Error(where + ": \"shape\" must be a list of at most 8 sizes; the file is damaged");
  }
  std::vector<int64_t> sizes;
  for (const auto& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{1} << 48) {
      throw Error(where + ": \"shape\" holds something that is not a size; the file is damaged");
    }
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

// Bytes the shape needs, or an error when that overflows 64 bits.
uint64_t bytes_for(const std::vector<int64_t>& shape, size_t element, const std::string& where) {
  uint64_t total = element;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) {
      throw Error(where + ": shape " + shape_text(shape) + " overflows; the file is damaged");
    }
  }
  return total;
}

StoredTensor parse_tensor(const std::string& name, const nlohmann::json& entry, const std::byte* data,
                          uint64_t data_bytes, const std::filesystem::path& file) {
  const std::string where = file.string() + ": tensor '" + name + "'";
  if (!entry.is_object()) throw Error(where + ": its header entry is not an object; the file is damaged");
  StoredTensor tensor;
  tensor.name = name;
  tensor.file = file;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string())
    throw Error(where + ": \"dtype\" is missing; the file is damaged");
  tensor.dtype = dtype->get<std::string>();
  const size_t element = element_bytes(tensor.dtype);
  if (element == 0) throw Error(where + ": unknown dtype \"" + tensor.dtype.substr(0, 40) + "\"");
  tensor.shape = parse_shape(entry, where);
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    throw Error(where + ": \"data_offsets\" must be two numbers; the file is damaged");
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    throw Error(where + ": its data ends at byte " + std::to_string(end) + " of " +
                std::to_string(data_bytes) + "; the file is truncated or damaged, download it again");
  }
  if (end - begin != bytes_for(tensor.shape, element, where)) {
    throw Error(where + ": " + std::to_string(end - begin) + " bytes do not fit shape " +
                shape_text(tensor.shape) + " of " + tensor.dtype + "; the file is damaged");
  }
  tensor.data = data + begin;
  tensor.bytes = end - begin;
  return tensor;
}

void check_overlaps(const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> by_address;
  for (const auto& tensor : tensors) {
    if (tensor.bytes > 0) by_address.push_back(&tensor);
  }
  std::sort(by_address.begin(), by_address.end(), [](auto* a, auto* b) { return a->data < b->data; });
  for (size_t i = 1; i < by_address.size(); ++i) {
    const auto& before = *by_address[i - 1];
    if (before.data + before.bytes > by_address[i]->data) {
      throw Error(before.file.string() + ": tensors '" + before.name + "' and '" + by_address[i]->name +
                  "' overlap; the file is damaged");
    }
  }
}

std::vector<StoredTensor> parse_file(const MappedFile& mapped, const std::filesystem::path& file) {
  const std::string name = file.string();
  if (mapped.size() < 8) throw Error(name + ": too short for a safetensors file; download it again");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, mapped.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > mapped.size() - 8) {
    throw Error(name + ": the header claims " + std::to_string(header_bytes) + " bytes and the file has " +
                std::to_string(mapped.size()) + "; not a safetensors file, or a truncated one");
  }
  const std::string_view text(reinterpret_cast<const char*>(mapped.data()) + 8, header_bytes);
  const nlohmann::json header = parse_json(text, name + " (header)");
  if (!header.is_object()) throw Error(name + ": the header is not a JSON object; the file is damaged");
  std::vector<StoredTensor> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    tensors.push_back(
        parse_tensor(key, entry, mapped.data() + 8 + header_bytes, mapped.size() - 8 - header_bytes, file));
  }
  check_overlaps(tensors);
  return tensors;
}

// The shard files an index names, each once. A shard must lie beside its index.
std::set<std::string> shard_names(const std::filesystem::path& index) {
  const nlohmann::json json = read_json(index);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw Error(index.string() + ": \"weight_map\" is missing or not an object");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) throw Error(index.string() + ": weight_map['" + tensor + "'] is not a file name");
    const auto name = file.get<std::string>();
    if (name.empty() || std::filesystem::path(name).filename() != name || name == "..") {
      std::string what = index.string() + ": weight_map['" + tensor + "'] = \"";
      what += name + "\" is not a plain file name";
      throw Error(what);
    }
    names.insert(name);
  }
  return names;
}

}  // namespace

DType StoredTensor::float_dtype() const {
  if (dtype == "F32") return DType::kF32;
  if (dtype == "F16") return DType::kF16;
  if (dtype == "BF16") return DType::kBF16;
  throw Error(file.string() + ": tensor '" + name + "' is " + dtype +
              "; lariat runs F32, F16 and BF16 weights");
}

Checkpoint Checkpoint::open(const std::filesystem::path& dir) {
  std::error_code ec;
  if (!std::filesystem::is_directory(dir, ec)) {
    throw Error(dir.string() + ": no such folder; --model takes a Hugging Face checkpoint folder");
  }
  const auto single = dir / "model.safetensors";
  const auto index = dir / "model.safetensors.index.json";
  Checkpoint checkpoint;
  if (std::filesystem::exists(single, ec)) {
    checkpoint.source_ = single;
    checkpoint.add_file(single);
  } else if (std::filesystem::exists(index, ec)) {
    checkpoint.source_ = index;
    for (const auto& shard : shard_names(index)) checkpoint.add_file(dir / shard);
  } else {
    throw Error(dir.string() + ": neither model.safetensors nor model.safetensors.index.json is there");
  }
  return checkpoint;
}

Checkpoint Checkpoint::open_file(const std::filesystem::path& file) {
  Checkpoint checkpoint;
  checkpoint.source_ = file;
  checkpoint.add_file(file);
  return checkpoint;
}

void Checkpoint::add_file(const std::filesystem::path& file) {
  files_.push_back(std::make_unique<MappedFile>(file));
  for (auto& tensor : parse_file(*files_.back(), file)) {
    align(tensor);
    const auto [place, inserted] = tensors_.emplace(tensor.name, tensor);
    if (!inserted) {
      throw Error(file.string() + ": tensor '" + tensor.name + "' is also in " + place->second.file.string());
    }
  }
}

// Old files may start their data on any byte; vectors and sanitizers want elements on their own multiples.
void Checkpoint::align(StoredTensor& tensor) {
  const size_t element = element_bytes(tensor.dtype);
  if (element <= 1 || reinterpret_cast<uintptr_t>(tensor.data) % element == 0) return;
  auto& copy = aligned_copies_.emplace_back(tensor.data, tensor.data + tensor.bytes);
  tensor.data = copy.data();
}

const StoredTensor* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const StoredTensor& Checkpoint::get(const std::string& name, const std::vector<int64_t>& shape) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    throw Error(source_.string() + ": tensor '" + name +
                "' is missing; the checkpoint and config.json do not match");
  }
  if (tensor->shape != shape) {
    throw Error(tensor->file.string() + ": tensor '" + name + "' has shape " + shape_text(tensor->shape) +
                ", config.json asks for " + shape_text(shape));
  }
  return *tensor;
}

size_t Checkpoint::bytes() const {
  size_t total = 0;
  for (const auto& file : files_) total += file->size();
  return total;
}

void Checkpoint::populate(const std::function<void(size_t)>& progress) const {
  size_t before = 0;
  for (const auto& file : files_) {
    file->populate([&](size_t done) { progress(before + done); });
    before += file->size();
  }
}

}  // namespace lariat
