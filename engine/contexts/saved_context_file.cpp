#include "engine/contexts/saved_context_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string_view>

#include "engine/contexts/fingerprint.h"
#include "engine/runtime/sequence.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "kernels/integers.h"

namespace lariat {
namespace {

constexpr std::string_view kAnyFormat = "lariat context ";
constexpr const char* kFormat = "lariat context 1";
constexpr size_t kMaxTensors = 500'000;  // 60 MB of JSON header
constexpr int64_t kMaxLength = int64_t{1} << 40;
constexpr double kMaxStretch = static_cast<double>(kMaxLength);

using Metadata = std::map<std::string, std::string>;

std::string stored_name(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : dtype == DType::kQ8 ? "I8" : "BF16";
}

std::vector<StoredTensor> parse(std::span<const std::byte> bytes, const std::filesystem::path& file,
                                Metadata& metadata) {
  try {
    return parse_safetensors(bytes, file, &metadata);
  } catch (const Error& e) {
    // A damaged checkpoint can be downloaded again, a saved context cannot.
    constexpr std::string_view kOfCheckpoints = "download it again";
    std::string what = e.what();
    if (const size_t at = what.find(kOfCheckpoints); at != std::string::npos)
      what.replace(at, kOfCheckpoints.size(), "save it again");
    throw Error(what);
  }
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::filesystem::path& file) : file_(file) {
    for (StoredTensor& tensor : parse(bytes, file, metadata_)) {
      std::string name = tensor.name;
      tensors_.emplace(std::move(name), std::move(tensor));
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw Error(file_.string() + ": " + what); }
  [[noreturn]] void damaged(const std::string& what) const {
    fail(what + "; the saved context is damaged, save it again");
  }

  const std::string& text(const std::string& key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) damaged("\"" + key + "\" is missing in its header");
    return found->second;
  }
  int64_t number(const std::string& key, int64_t most) const {
    const std::string& digits = text(key);
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > most)
      damaged(fmt::format("\"{}\" in its header is \"{:.40}\"", key, digits));
    return value;
  }
  double stretch() const {
    const std::string& digits = text("stretch");
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || !(value >= 1 && value <= kMaxStretch))
      damaged(fmt::format("\"stretch\" in its header is \"{:.40}\"", digits));
    return value;
  }
  const Metadata& metadata() const { return metadata_; }
  std::string text_or_none(const std::string& key) const {
    return metadata_.contains(key) ? text(key) : std::string();
  }
  size_t n_tensors() const { return tensors_.size(); }
  const StoredTensor& tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) damaged("tensor '" + name + "' is missing");
    return found->second;
  }

  template <class T>
  std::vector<T> values(const std::string& name) const {
    const StoredTensor& stored = tensor(name);
    std::vector<T> values(stored.bytes / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), stored.data, stored.bytes);
    return values;
  }

 private:
  const std::filesystem::path& file_;
  Metadata metadata_;
  std::map<std::string, StoredTensor> tensors_;
};

ContextIdentity check_identity(const Reader& file, const ContextIdentity& own) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || !format->second.starts_with(kAnyFormat))
    file.fail("not a saved context; give a file that lariat saved");
  if (format->second != kFormat)
    file.fail(fmt::format("\"{:.40}\" is another format version, this lariat reads \"{}\"; save it again",
                          format->second, kFormat));
  ContextIdentity saved = {file.text("model"),
                           file.text("tokenizer"),
                           file.text("weights"),
                           file.text("keys"),
                           file.text("values"),
                           file.text("rope"),
                           file.text_or_none("position_method")};
  if (saved.model != own.model) file.fail("saved with another model; load it with the same model");
  if (!is_same_tokenizer(saved.tokenizer, own.tokenizer))
    file.fail("saved with another tokenizer; load it with the same tokenizer");
  if (saved.weights != own.weights)
    file.fail(
        fmt::format("saved with {:.20} weights, and this run has {}; use the same `dtype` or `quantize`",
                    saved.weights, own.weights));
  if (saved.keys != own.keys || saved.values != own.values)
    file.fail(
        fmt::format("saved with {:.20} keys and {:.20} values, and this run has {} and {}; use the "
                    "`kv_dtype` of the file",
                    saved.keys, saved.values, own.keys, own.values));
  if (saved.method != own.method) {
    const auto in_words = [](const std::string& method) { return method.empty() ? "none" : method; };
    file.fail(fmt::format("saved with `position_method` {:.200}, and this run has {}; use the same one",
                          in_words(saved.method), in_words(own.method)));
  }
  if (saved.rope != own.rope)
    file.fail(
        fmt::format("keys are rotated in {:.80}, and this run rotates {}; load it with the same model and "
                    "RoPE options",
                    saved.rope, own.rope));
  return saved;
}

// Number of rows of an I32 tensor [n] (columns = 1) or [n, columns]. Checks the shape before any allocation:
// a shape with a 0 may claim any other size without a byte in the file.
int64_t rows_of(const Reader& file, const std::string& name, int64_t columns) {
  const StoredTensor& tensor = file.tensor(name);
  const int64_t rows = static_cast<int64_t>(tensor.bytes / sizeof(int32_t)) / columns;
  std::vector<int64_t> shape = {rows};
  if (columns > 1) shape.push_back(columns);
  if (tensor.dtype != "I32" || tensor.shape != shape)
    file.damaged("tensor '" + name + "' has a wrong dtype or shape");
  return rows;
}

// Returns the first tensor's address.
const std::byte* check_tensors(const Reader& file, const std::vector<NamedShape>& wanted) {
  const std::byte* begin = nullptr;
  size_t offset = 0;
  for (const NamedShape& shape : wanted) {
    const StoredTensor& tensor = file.tensor(shape.name);
    if (begin == nullptr) begin = tensor.data;
    if (tensor.dtype != shape.dtype || tensor.shape != shape.shape || tensor.data != begin + offset)
      file.damaged("tensor '" + shape.name + "' has a wrong dtype, shape or offset");
    offset += tensor.bytes;
  }
  if (file.n_tensors() != wanted.size()) file.damaged("it has unknown tensors");
  return begin;
}

void check_values(const Reader& file, const ContextRecord& record, int64_t vocab_size) {
  for (const int32_t token : record.tokens) {
    if (token < 0 || token >= vocab_size)
      file.damaged(fmt::format("token id {} is outside the vocabulary of {}", token, vocab_size));
  }
  for (const int32_t position : record.placed) {
    if (position < 0 || position > kMaxPosition)
      file.damaged(fmt::format("a token's position is {}", position));
  }
  const RopeFrequencies& frequencies = record.frequencies;
  const auto usable = [](double x) { return std::isfinite(x) && x >= 0; };
  if (!std::all_of(frequencies.inv_freq.begin(), frequencies.inv_freq.end(), usable) ||
      !usable(frequencies.attention_factor))
    file.damaged("its RoPE frequencies are negative or not finite");
}

}  // namespace

bool is_saved_context(const std::filesystem::path& file) {
  std::string head(size_t{1} << 12, '\0');  // holds the metadata
  std::ifstream(file, std::ios::binary).read(head.data(), std::ssize(head));
  return head.find(kAnyFormat) != std::string::npos;
}

Metadata context_metadata(const ContextRecord& record) {
  const ContextIdentity& identity = record.identity;
  Metadata metadata = {{"format", kFormat},
                       {"model", identity.model},
                       {"tokenizer", identity.tokenizer},
                       {"weights", identity.weights},
                       {"keys", identity.keys},
                       {"values", identity.values},
                       {"rope", identity.rope},
                       {"scaling", record.scaling},
                       {"length", std::to_string(record.length)},
                       {"expected", std::to_string(record.expected)}};
  if (!record.note.empty()) metadata["note"] = record.note;
  if (!identity.method.empty()) {
    metadata["position_method"] = identity.method;
    metadata["stretch"] = fmt::format("{}", record.stretch);
  }
  return metadata;
}

std::vector<NamedShape> context_tensors(const KvGeometry& geometry, const ContextRecord& record,
                                        const std::filesystem::path& file) {
  const int64_t n_pages = ceil_div(record.length, kKvPage);
  if (static_cast<size_t>(n_pages) > kMaxTensors / (4 * geometry.layers.size()))
    throw Error(
        fmt::format("{}: {} tokens of {} layers exceed the limit of a saved context; save a shorter one",
                    file.string(), record.length, geometry.layers.size()));
  std::vector<NamedShape> tensors;
  for (int64_t page = 0; page < n_pages; ++page) {
    for (size_t i = 0; i < geometry.layers.size(); ++i) {
      const KvLayer& layer = geometry.layers[i];
      const std::string name = fmt::format("page.{}.layer.{}.", page, i);
      const std::vector<int64_t> shape = {layer.n_kv_heads, kKvPage, layer.head_dim};
      tensors.push_back({name + "keys", shape, stored_name(layer.k_dtype)});
      if (layer.v_offset == layer.k_offset) continue;
      tensors.push_back({name + "values", shape, stored_name(layer.v_dtype)});
      if (layer.v_dtype == DType::kQ8)
        tensors.push_back({name + "value_scales", {layer.n_kv_heads, kKvPage}, "F32"});
      if (layer.second_k_offset > 0)
        tensors.push_back({name + "second_keys", shape, stored_name(layer.k_dtype)});
    }
  }
  tensors.push_back({"inv_freq", {static_cast<int64_t>(record.frequencies.inv_freq.size())}, "F64"});
  tensors.push_back({"attention_factor", {1}, "F64"});
  tensors.push_back({"checksums", {n_pages + 1}, "U64"});
  tensors.push_back({"tokens", {std::ssize(record.tokens)}, "I32"});
  tensors.push_back({"positions", {static_cast<int64_t>(record.placed.size() / 3), 3}, "I32"});
  return tensors;
}

uint64_t context_checksum(const ContextRecord& record) {
  uint64_t sum = 0;
  for (const auto& [key, value] : context_metadata(record)) add_to_checksum(sum, value);
  add_to_checksum(sum, std::as_bytes(std::span(record.frequencies.inv_freq)));
  add_to_checksum(sum, std::as_bytes(std::span(&record.frequencies.attention_factor, 1)));
  add_to_checksum(sum, std::as_bytes(std::span(record.tokens)));
  add_to_checksum(sum, std::as_bytes(std::span(record.placed)));
  return sum;
}

ContextRecord parse_saved_context(std::span<const std::byte> bytes, const std::filesystem::path& file,
                                  const ContextExpectations& expected) {
  const Reader reader(bytes, file);
  ContextRecord record;
  record.identity = check_identity(reader, expected.identity);
  record.scaling = reader.text("scaling");
  record.expected = reader.number("expected", kMaxLength);
  record.note = reader.text_or_none("note");
  if (!record.identity.method.empty()) record.stretch = reader.stretch();
  record.length = reader.number("length", kMaxLength);
  // The file bounds the sizes of its tensors.
  const int64_t tokens = rows_of(reader, "tokens", 1);
  if (tokens != record.length && tokens - 1 != record.length)
    reader.damaged("the number of tokens differs from its header");
  const int64_t placed = rows_of(reader, "positions", 3);
  if (placed > 0 && !expected.has_mrope) reader.damaged("it has M-RoPE positions, its model has no M-RoPE");
  if (expected.max_ctx > 0 && record.length > expected.max_ctx)
    throw ContextFull(fmt::format("{}: has {} and the context allows {}", file.string(),
                                  counted(record.length, "token"), expected.max_ctx));
  record.tokens.resize(static_cast<size_t>(tokens));
  record.placed.resize(static_cast<size_t>(3 * placed));
  record.frequencies.inv_freq.resize(expected.n_frequencies);
  const std::byte* begin = check_tensors(reader, context_tensors(expected.geometry, record, file));
  // Pages are used in place.
  if ((begin - bytes.data()) % 64 != 0) reader.damaged("its pages do not begin at a multiple of 64 bytes");
  record.tokens = reader.values<int32_t>("tokens");
  record.placed = reader.values<int32_t>("positions");
  record.frequencies.inv_freq = reader.values<double>("inv_freq");
  record.frequencies.attention_factor = reader.values<double>("attention_factor").front();
  check_values(reader, record, expected.vocab_size);
  const auto checksums = reader.values<uint64_t>("checksums");
  if (checksums.back() != context_checksum(record)) reader.damaged("its tokens or header were changed");
  const size_t page_bytes = expected.geometry.page_bytes;
  record.pages = {begin, (checksums.size() - 1) * page_bytes};
  for (size_t i = 0; i + 1 < checksums.size(); ++i) {
    if (checksum(record.pages.subspan(i * page_bytes, page_bytes)) != checksums[i])
      reader.damaged(fmt::format("the keys and values of tokens {} to {} were changed", i * kKvPage,
                                 (i + 1) * kKvPage - 1));
  }
  return record;
}

}  // namespace lariat
