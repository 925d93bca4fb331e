#include "engine/contexts/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/error.h"
#include "models/io/mapped_file.h"
#include "models/text/tokenizer_settings.h"

namespace lariat {
namespace {

constexpr uint64_t kStart = 0xCBF29CE484222325U;
constexpr uint64_t kOdd = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio: well-mixed bits
constexpr size_t kSample = 256;                 // bytes at a tensor's beginning, middle and end
constexpr uint64_t kMaxText = uint64_t{1} << 30;

// Bijective in either argument, so any change within one word changes the sum. A product only carries
// upwards: the shift moves its upper bits down.
uint64_t mix(uint64_t sum, uint64_t word) {
  const uint64_t product = (sum ^ word) * kOdd;
  return product ^ (product >> 32);
}

class Summary {
 public:
  template <class... Numbers>
  void add(Numbers... numbers) {
    const double values[] = {static_cast<double>(numbers)...};
    add_to_checksum(sum_, std::as_bytes(std::span(values)));
  }
  template <class Number>
  void add_all(const std::vector<Number>& numbers) {
    add(numbers.size());
    for (const Number number : numbers) add(number);
  }
  void add_bytes(std::span<const std::byte> bytes) { add_to_checksum(sum_, bytes); }
  void add_text(std::string_view text) { add_to_checksum(sum_, text); }
  std::string hex() const { return fmt::format("{:016x}", sum_); }

 private:
  uint64_t sum_ = kStart;
};

// Skips the RoPE scaling: a saved context stores its frequencies. Includes local layers' RoPE, whose keys are
// never re-rotated.
void add_spec(Summary& summary, const ModelSpec& spec) {
  summary.add_text(spec.family);
  each_field(spec, [&](const auto&... fields) { summary.add(fields...); });
  summary.add_all(spec.alibi_slopes);
  summary.add_all(spec.mrope_axes);
  summary.add(spec.layers.size());
  for (const LayerSpec& layer : spec.layers)
    each_field(layer, [&](const auto&... fields) { summary.add(fields...); });
  for (size_t i = 1; i < spec.ropes.size(); ++i) summary.add_all(rope_frequencies(spec.ropes[i], 0).inv_freq);
}

void add_tensor(Summary& summary, const StoredTensor& tensor) {
  summary.add_text(tensor.name);
  summary.add_text(tensor.dtype);
  summary.add_all(tensor.shape);
  const std::span data(tensor.data, tensor.bytes);
  const size_t n = std::min(kSample, data.size());
  summary.add_bytes(data.first(n));
  summary.add_bytes(data.subspan((data.size() - n) / 2, n));
  summary.add_bytes(data.last(n));
}

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 8, kBlock = kLanes * sizeof(uint64_t);
  uint64_t lanes[kLanes];
  std::fill_n(lanes, kLanes, kStart);
  const auto add_block = [&](const std::byte* block) {
    uint64_t words[kLanes];
    std::memcpy(words, block, kBlock);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
  };
  const size_t whole = bytes.size() / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock) add_block(bytes.data() + at);
  if (whole < bytes.size()) {
    std::byte rest[kBlock] = {};
    std::memcpy(rest, bytes.data() + whole, bytes.size() - whole);
    add_block(rest);
  }
  uint64_t sum = mix(kStart, bytes.size());
  for (const uint64_t lane : lanes) sum = mix(sum, lane);
  return sum;
}

void add_to_checksum(uint64_t& sum, std::span<const std::byte> bytes) { sum = mix(sum, checksum(bytes)); }

std::string model_fingerprint(const Model& model) {
  Summary summary;
  add_spec(summary, model.spec);
  if (model.files.tensors) {
    for (const auto& [name, tensor] : model.files.tensors->all()) add_tensor(summary, tensor);
  }
  return summary.hex();
}

std::string tokenizer_fingerprint(const ModelTexts& texts) {
  const tok::TokenizerSettings settings = tok::read_tokenizer_settings(texts);
  const std::string name = tok::vocabulary_name(texts, settings);
  if (name.empty()) return "none";
  Summary vocabulary, rest;
  vocabulary.add_text(texts.read(name, kMaxText));
  if (texts.has(tok::kGgufTokenizerKeys)) rest.add_text(texts.read(tok::kGgufTokenizerKeys, kMaxText));
  rest.add_text(settings.known != nullptr ? settings.known->names : settings.tokenizer_class);
  rest.add_text(settings.known != nullptr ? settings.known->added : "");
  rest.add(settings.legacy.value_or(true), settings.split_special);
  for (const auto* list : {&settings.added, &settings.added_with}) {
    for (const tok::AddedToken& token : *list) rest.add_text(token.content), rest.add(token.id);
  }
  return vocabulary.hex() + " " + rest.hex();
}

bool is_same_tokenizer(std::string_view saved, std::string_view own) {
  return saved == own || (!saved.empty() && saved == own.substr(0, own.find(' ')));
}

std::string texts_fingerprint(const ModelTexts& texts) {
  Summary summary;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
                           "chat_template.jinja", "chat_template.json"}) {
    summary.add_text(name);
    if (texts.has(name)) summary.add_text(texts.read(name, kMaxText));
  }
  for (const char* name : {"qwen.tiktoken", "tokenizer.ggml"}) {
    if (texts.has(name)) summary.add_text(texts.read(name, kMaxText));
  }
  return summary.hex();
}

std::string file_fingerprint(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  Summary summary;
  summary.add_bytes({mapped.data(), mapped.size()});
  return summary.hex();
}

}  // namespace lariat
