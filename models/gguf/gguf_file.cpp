#include "models/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <type_traits>

#include "kernels/error.h"
#include "models/io/text_file.h"
#include "models/quantization/gguf_blocks.h"

namespace lariat {
namespace {

constexpr size_t kKindBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr uint64_t kMaxKey = 65535, kMaxName = 64, kMaxDims = 4, kMaxSize = uint64_t{1} << 48;
constexpr uint64_t kMinTensorBytes = 24, kMinPairBytes = 13;  // per entry of the file
constexpr int64_t kMaxAlignment = 1 << 20;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// nullopt: T (int64_t or double) cannot hold the value.
template <class T>
std::optional<T> element(const GgufValue& value, uint64_t index) {
  using enum GgufKind;
  const size_t bytes = kKindBytes[static_cast<size_t>(value.kind)];
  const std::byte* at = value.data + index * bytes;
  if (value.kind == kString) return std::nullopt;
  if (value.kind == kF32 || value.kind == kF64) {
    if constexpr (std::is_same_v<T, int64_t>) return std::nullopt;
    return static_cast<T>(value.kind == kF32 ? static_cast<double>(load<float>(at)) : load<double>(at));
  }
  const bool is_signed = value.kind == kI8 || value.kind == kI16 || value.kind == kI32 || value.kind == kI64;
  const size_t above = 64 - 8 * bytes;
  uint64_t raw = 0;
  std::memcpy(&raw, at, bytes);
  const auto number = static_cast<int64_t>(raw << above) >> (is_signed ? above : 0);
  if (is_signed) return static_cast<T>(number);
  return raw > INT64_MAX ? std::nullopt : std::optional(static_cast<T>(raw));
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::filesystem::path& path) : bytes_(bytes) {
    file_.path = path;
  }

  GgufFile run() && {
    header();
    for (uint64_t i = 0; i < n_pairs_; ++i) pair(i);
    alignment_ = alignment();
    for (uint64_t i = 0; i < n_tensors_; ++i) tensor(i);
    place_tensors();
    check_overlaps();
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: {}; the file is damaged, download it again", file_.path.string(), what));
  }
  uint64_t left() const { return bytes_.size() - at_; }

  const std::byte* take(uint64_t bytes, const std::string& what) {
    if (bytes > left()) fail(fmt::format("it ends inside {}", what));
    const std::byte* start = bytes_.data() + at_;
    at_ += bytes;
    return start;
  }
  template <class T>
  T number(const std::string& what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view string(const std::string& what) {
    const auto bytes = number<uint64_t>(what);
    if (bytes > left()) fail(fmt::format("{} claims {} bytes, but {} are left", what, bytes, left()));
    return {reinterpret_cast<const char*>(take(bytes, what)), bytes};
  }

  void header() {
    const std::string name = file_.path.string();
    refuse_lfs_pointer({reinterpret_cast<const char*>(bytes_.data()), std::min(bytes_.size(), kTextHead)},
                       name);
    if (number<uint32_t>("its header") != 0x46554747)
      throw Error(name + ": not a GGUF file; check the path, or download it again");
    const auto version = number<uint32_t>("its header");
    if ((version & 0xFFFF) == 0) throw Error(name + ": a big-endian GGUF; use a little-endian one");
    if (version != 2 && version != 3)
      throw Error(fmt::format("{}: GGUF version {} is not supported; convert it to 2 or 3 with llama.cpp",
                              name, version));
    n_tensors_ = number<uint64_t>("its header");
    n_pairs_ = number<uint64_t>("its header");
    if (n_tensors_ > left() / kMinTensorBytes || n_pairs_ > left() / kMinPairBytes) {
      fail(fmt::format("it claims {} tensors and {} keys, too many for its {} bytes", n_tensors_, n_pairs_,
                       bytes_.size()));
    }
  }

  void check_name(std::string_view name, const std::string& what, uint64_t longest) const {
    if (name.empty() || name.size() > longest) fail(fmt::format("{} has {} bytes", what, name.size()));
    if (std::ranges::any_of(name, [](char c) { return c >= 0 && c < ' '; }))
      fail(what + " has a control character");
  }

  GgufKind kind(const std::string& where) {
    const auto id = number<uint32_t>(where);
    if (id > static_cast<uint32_t>(GgufKind::kF64))
      fail(fmt::format("{} has the unknown type {}", where, id));
    return static_cast<GgufKind>(id);
  }

  void pair(uint64_t index) {
    const std::string_view key = string(fmt::format("key {}", index));
    check_name(key, fmt::format("key {}", index), kMaxKey);
    const std::string where = fmt::format("key '{:.100}'", key);
    GgufValue value{.kind = kind(where)};
    if (value.kind == GgufKind::kArray) {
      value = {.kind = kind(where), .array = true, .count = number<uint64_t>(where)};
      if (value.kind == GgufKind::kArray) fail(where + " is an array of arrays");
    }
    value.data = bytes_.data() + at_;
    const size_t each = kKindBytes[static_cast<size_t>(value.kind)];
    // A string takes at least 8 bytes, its length.
    if (value.count > left() / std::max<uint64_t>(each, each == 0 ? 8 : 1))
      fail(fmt::format("{} claims {} values, but {} bytes are left", where, value.count, left()));
    if (each == 0) {
      for (uint64_t i = 0; i < value.count; ++i) string(where);
    } else {
      take(value.count * each, where);
    }
    value.bytes = static_cast<size_t>(bytes_.data() + at_ - value.data);
    for (uint64_t i = 0; value.kind == GgufKind::kBool && i < value.count; ++i) {
      if (load<uint8_t>(value.data + i) > 1) fail(where + " is neither true nor false");
    }
    if (!file_.metadata.emplace(key, value).second) fail(where + " occurs twice");
  }

  uint64_t alignment() const {
    const int64_t given = file_.integer("general.alignment").value_or(32);
    if (given < 1 || given > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(given)))
      file_.fail("general.alignment",
                 fmt::format("{} is not a power of two up to {}; the file is damaged, download it again",
                             given, kMaxAlignment));
    return static_cast<uint64_t>(given);
  }

  void tensor(uint64_t index) {
    StoredTensor tensor;
    tensor.name = string(fmt::format("the name of tensor {}", index));
    const std::string where = fmt::format("tensor '{:.100}'", tensor.name);
    check_name(tensor.name, fmt::format("the name of tensor {}", index), kMaxName);
    if (!names_.insert(tensor.name).second) fail(where + " occurs twice");
    const auto n_dims = number<uint32_t>(where);
    if (n_dims > kMaxDims) fail(fmt::format("{} has {} dimensions", where, n_dims));
    uint64_t values = 1;
    for (uint32_t i = 0; i < n_dims; ++i) {
      const auto size = number<uint64_t>(where);
      if (size == 0 || size > kMaxSize || __builtin_mul_overflow(values, size, &values) || values > kMaxSize)
        fail(fmt::format("{} has an invalid dimension of {}", where, size));
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const auto id = number<uint32_t>(where);
    const GgufType* type = find_gguf_type(id);
    if (type == nullptr) {
      throw Error(fmt::format("{}: {} has the unknown type {}; use a file of another type",
                              file_.path.string(), where, id));
    }
    const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % type->elements != 0) {
      fail(fmt::format("{} is {}, but blocks of {} do not divide rows of {}", where, type->name,
                       type->elements, row));
    }
    tensor.dtype = type->name;
    tensor.bytes = values / static_cast<uint64_t>(type->elements) *
                   static_cast<uint64_t>(type->bytes);  // below 2^48 / block * bytes
    tensor.file = file_.path;
    offsets_.push_back(number<uint64_t>(where));
    file_.tensors.push_back(std::move(tensor));
  }

  void place_tensors() {
    const uint64_t begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      StoredTensor& tensor = file_.tensors[i];
      const std::string where = fmt::format("tensor '{:.100}'", tensor.name);
      if (offsets_[i] % alignment_ != 0)
        fail(fmt::format("{} begins at {}, not a multiple of {}", where, offsets_[i], alignment_));
      const uint64_t room = begin > bytes_.size() ? 0 : bytes_.size() - begin;
      if (offsets_[i] > room || tensor.bytes > room - offsets_[i]) {
        fail(fmt::format(
            "{} begins at {} and has {} bytes, but the file has {} for all tensors: it is truncated", where,
            offsets_[i], tensor.bytes, room));
      }
      tensor.data = bytes_.data() + begin + offsets_[i];
    }
  }

  void check_overlaps() const {
    std::vector<const StoredTensor*> order;
    for (const StoredTensor& tensor : file_.tensors) order.push_back(&tensor);
    std::ranges::sort(order, {}, &StoredTensor::data);
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->data + order[i - 1]->bytes > order[i]->data) {
        fail(fmt::format("tensors '{:.100}' and '{:.100}' overlap", order[i - 1]->name, order[i]->name));
      }
    }
  }

  std::span<const std::byte> bytes_;
  GgufFile file_;
  uint64_t at_ = 0, n_tensors_ = 0, n_pairs_ = 0, alignment_ = 32;
  std::set<std::string> names_;
  std::vector<uint64_t> offsets_;
};

std::mutex read_keys_mutex;  // one for all files, as a file is copied and has few keys

template <class T>
std::vector<T> values_of(const GgufFile& file, std::string_view key, const char* expected) {
  file.mark_read(key);
  const auto found = file.metadata.find(key);
  std::vector<T> values;
  if (found == file.metadata.end()) return values;
  values.reserve(found->second.count);
  for (uint64_t i = 0; i < found->second.count; ++i) {
    const auto value = element<T>(found->second, i);
    if (!value) file.fail(key, std::string("expected ") + expected);
    values.push_back(*value);
  }
  return values;
}

const GgufValue* single(const GgufFile& file, std::string_view key) {
  file.mark_read(key);
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return nullptr;
  if (found->second.array) file.fail(key, "expected one value, not an array");
  return &found->second;
}

}  // namespace

void GgufFile::mark_read(std::string_view key) const {
  const std::lock_guard lock(read_keys_mutex);
  read_keys.emplace(key);
}

bool GgufFile::was_read(std::string_view key) const {
  const std::lock_guard lock(read_keys_mutex);
  return read_keys.contains(key);
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  return single(*this, key) == nullptr ? std::nullopt : std::optional(integers(key).front());
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = single(*this, key);
  if (value == nullptr) return std::nullopt;
  const double number = numbers(key).front();
  // Shortest decimal of the float: 1e-05, not 9.999999747378752e-06.
  return value->kind == GgufKind::kF32 ? std::stod(fmt::format("{}", static_cast<float>(number))) : number;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = single(*this, key);
  if (value == nullptr) return std::nullopt;
  const auto given = element<int64_t>(*value, 0);
  if (!given || *given < 0 || *given > 1) fail(key, "expected true or false");
  return given == 1;
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  return single(*this, key) == nullptr ? std::nullopt : std::optional(strings(key).front());
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  return values_of<int64_t>(*this, key, "an integer");
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  std::vector<double> numbers = values_of<double>(*this, key, "a number");
  for (const double value : numbers) {
    if (!std::isfinite(value)) fail(key, "expected a finite number");
  }
  return numbers;
}

std::vector<std::string_view> GgufFile::strings(std::string_view key) const {
  mark_read(key);
  const auto found = metadata.find(key);
  std::vector<std::string_view> strings;
  if (found == metadata.end()) return strings;
  if (found->second.kind != GgufKind::kString) fail(key, "expected a text");
  strings.reserve(found->second.count);
  const std::byte* at = found->second.data;
  for (uint64_t i = 0; i < found->second.count; ++i) {
    const auto bytes = load<uint64_t>(at);
    strings.emplace_back(reinterpret_cast<const char*>(at + 8), bytes);
    at += 8 + bytes;
  }
  return strings;
}

const StoredTensor* GgufFile::tensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &StoredTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

void GgufFile::fail(std::string_view key, const std::string& what) const {
  throw Error(fmt::format("{}: key '{:.100}': {}", path.string(), key, what));
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ec;
  char head[4] = {};
  if (!std::filesystem::is_regular_file(path, ec)) return false;
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return path.extension() == ".gguf" || std::string_view(head, sizeof head) == "GGUF";
}

GgufFile parse_gguf(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  return Reader(bytes, path).run();
}

}  // namespace lariat
