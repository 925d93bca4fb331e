// Format (https://github.com/huggingface/safetensors): header length in 8 bytes (little endian), a JSON
// header {"name": {"dtype", "shape", "data_offsets": [begin, end)}}, data.
#include "models/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/io/json_file.h"

namespace lariat {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kMaxRank = 8;

std::vector<int64_t> parse_shape(const nlohmann::json& entry, const std::string& where) {
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxRank) {
    throw Error(where +
                ": \"shape\" must be a list of at most 8 sizes; the file is damaged, download it again");
  }
  std::vector<int64_t> sizes;
  for (const auto& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{1} << 48) {
      throw Error(where + ": \"shape\" holds an invalid size; the file is damaged, download it again");
    }
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

uint64_t bytes_for(const std::vector<int64_t>& shape, size_t element, const std::string& where) {
  uint64_t total = element;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) {
      throw Error(fmt::format("{}: shape {} overflows; the file is damaged, download it again", where,
                              shape_text(shape)));
    }
  }
  return total;
}

StoredTensor parse_tensor(const std::string& name, const nlohmann::json& entry, const std::byte* data,
                          uint64_t data_bytes, const std::filesystem::path& file) {
  const std::string where = fmt::format("{}: tensor '{:.200}'", file.string(), name);
  if (!entry.is_object())
    throw Error(where + ": its header entry is not an object; the file is damaged, download it again");
  StoredTensor tensor;
  tensor.name = name;
  tensor.file = file;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string())
    throw Error(where + ": \"dtype\" is missing; the file is damaged, download it again");
  tensor.dtype = dtype->get<std::string>();
  const size_t element = safetensors_element_bytes(tensor.dtype);
  if (element == 0)
    throw Error(
        fmt::format("{}: unknown dtype \"{:.40}\"; use a file in another dtype", where, tensor.dtype));
  tensor.shape = parse_shape(entry, where);
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    throw Error(where + ": \"data_offsets\" must be two numbers; the file is damaged, download it again");
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    throw Error(
        fmt::format("{}: its data ends at byte {} of {}; the file is truncated or damaged, download it again",
                    where, end, data_bytes));
  }
  if (end - begin != bytes_for(tensor.shape, element, where)) {
    throw Error(fmt::format("{}: {} not fit shape {} of {}; the file is damaged, download it again", where,
                            counted(end - begin, "byte does", "bytes do"), shape_text(tensor.shape),
                            tensor.dtype));
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
      throw Error(fmt::format("{}: tensors '{}' and '{}' overlap; the file is damaged, download it again",
                              before.file.string(), before.name, by_address[i]->name));
    }
  }
}

// Bytes remain if the header is of another file, or the download incomplete.
void check_end(const std::vector<StoredTensor>& tensors, std::span<const std::byte> bytes,
               uint64_t header_bytes, const std::string& name) {
  const std::byte* end = bytes.data() + 8 + header_bytes;
  for (const auto& tensor : tensors) end = std::max(end, tensor.data + tensor.bytes);
  const auto used = static_cast<size_t>(end - bytes.data());
  if (used == bytes.size()) return;
  throw Error(fmt::format(
      "{}: its tensors end at byte {}, but the file has {} bytes; the file is damaged, download it again",
      name, used, bytes.size()));
}

std::map<std::string, std::string> parse_metadata(const nlohmann::json& entry, const std::string& name) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object())
    throw Error(name + ": \"__metadata__\" is not an object; the file is damaged, download it again");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string())
      throw Error(fmt::format(
          "{}: __metadata__['{:.100}'] is not a text; the file is damaged, download it again", name, key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void add_file(const std::filesystem::path& file, Tensors& tensors) {
  MappedFile mapped(file);
  std::vector<StoredTensor> found = parse_safetensors({mapped.data(), mapped.size()}, file);
  tensors.add(std::move(mapped), std::move(found));
}

// Names the weights that exist under other names.
[[noreturn]] void fail_without_index(const std::filesystem::path& dir) {
  std::set<std::filesystem::path> found;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec))
    if (it->path().extension() == ".safetensors") found.insert(it->path());
  std::string what = dir.string() + ": neither model.safetensors nor model.safetensors.index.json exists";
  if (found.empty()) throw Error(what + "; add the weights");
  const std::string first = found.begin()->filename().string();
  what += fmt::format(", only {} ({})", first, counted(found.size(), "safetensors file"));
  if (first.starts_with("consolidated"))
    throw Error(what +
                ": tensor names of the original release are not supported; download the converted weights");
  throw Error(what + (first.find("-of-") != first.npos ? "; download the index of these parts, too"
                                                       : "; if it is the whole model, rename it"));
}

}  // namespace

size_t safetensors_element_bytes(const std::string& dtype) {
  static const std::map<std::string, size_t> kSizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8}};
  const auto found = kSizes.find(dtype);
  return found == kSizes.end() ? 0 : found->second;
}

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::filesystem::path& file,
                                            std::map<std::string, std::string>* metadata) {
  const std::string name = file.string();
  refuse_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kTextHead)}, name);
  if (bytes.size() < 8) throw Error(name + ": too short for a safetensors file; download it again");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > bytes.size() - 8) {
    throw Error(fmt::format(
        "{}: not a safetensors file, or truncated: the header claims {} of {} bytes; download it again", name,
        header_bytes, bytes.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  // The JSON parser would ignore the rest.
  if (text.find('\0') != std::string_view::npos)
    throw Error(name + ": a zero byte in the header; the file is damaged, download it again");
  const nlohmann::json header = parse_json(text, name + " (header)");
  if (!header.is_object())
    throw Error(name + ": the header is not a JSON object; the file is damaged, download it again");
  std::vector<StoredTensor> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      if (metadata != nullptr) *metadata = parse_metadata(entry, name);
      continue;
    }
    tensors.push_back(
        parse_tensor(key, entry, bytes.data() + 8 + header_bytes, bytes.size() - 8 - header_bytes, file));
  }
  check_overlaps(tensors);
  check_end(tensors, bytes, header_bytes, name);
  return tensors;
}

std::set<std::string> parse_safetensors_index(std::string_view text, const std::filesystem::path& file) {
  const nlohmann::json json = parse_json(text, file.string());
  if (!json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw Error(file.string() + ": \"weight_map\" is missing or not an object; download it again");
  }
  std::set<std::string> names;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    const std::string where = fmt::format("{}: weight_map['{:.100}']", file.string(), tensor);
    if (!shard.is_string()) throw Error(where + " is not a file name; download it again");
    const auto name = shard.get<std::string>();
    const std::filesystem::path path(name);
    const bool below =
        path.is_relative() && path.has_filename() && name.find('\0') == std::string::npos &&
        std::ranges::none_of(path, [](const auto& part) { return part == "." || part == ".."; });
    if (!below) {
      throw Error(fmt::format("{} = \"{:.100}\" is not a file in the model's folder; download it again",
                              where, name));
    }
    names.insert(name);
  }
  return names;
}

std::set<std::string> read_safetensors_index(const std::filesystem::path& file) {
  return parse_safetensors_index(read_file(file, kMaxIndexBytes), file);
}

Tensors open_safetensors(const std::filesystem::path& dir) {
  std::error_code ec;
  if (!std::filesystem::is_directory(dir, ec)) {
    throw Error(dir.string() + ": no such folder; `model` takes a Hugging Face checkpoint folder");
  }
  const auto single = dir / "model.safetensors";
  const auto index = dir / "model.safetensors.index.json";
  if (std::filesystem::exists(single, ec)) return open_safetensors_file(single);
  if (!std::filesystem::exists(index, ec)) fail_without_index(dir);
  Tensors tensors(index);
  for (const auto& shard : read_safetensors_index(index)) add_file(dir / shard, tensors);
  return tensors;
}

Tensors open_safetensors_file(const std::filesystem::path& file) {
  Tensors tensors(file);
  add_file(file, tensors);
  return tensors;
}

}  // namespace lariat
