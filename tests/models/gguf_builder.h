#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf/gguf_file.h"

namespace lariat::test {

class GgufBuilder {
 public:
  template <class T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_text(std::string& out, std::string_view text) {
    put<uint64_t>(out, text.size());
    out += text;
  }

  GgufBuilder& set(std::string_view key, uint32_t value) { return pair(key, 4, bytes_of(value)); }
  GgufBuilder& set(std::string_view key, float value) { return pair(key, 6, bytes_of(value)); }
  GgufBuilder& set(std::string_view key, bool value) { return pair(key, 7, std::string(1, value ? 1 : 0)); }
  GgufBuilder& set(std::string_view key, const char* value) {
    std::string text;
    put_text(text, value);
    return pair(key, 8, text);
  }
  GgufBuilder& set(std::string_view key, const std::vector<std::string>& values) {
    std::string all;
    for (const std::string& value : values) put_text(all, value);
    return array(key, 8, values.size(), all);
  }
  GgufBuilder& set(std::string_view key, const std::vector<float>& values) {
    return array(key, 6, values.size(), all_of(values));
  }
  GgufBuilder& set(std::string_view key, const std::vector<int32_t>& values) {
    return array(key, 5, values.size(), all_of(values));
  }
  GgufBuilder& array(std::string_view key, uint32_t type, uint64_t count, const std::string& values) {
    std::string value;
    put(value, type);
    put(value, count);
    return pair(key, 9, value + values);
  }
  GgufBuilder& pair(std::string_view key, uint32_t type, const std::string& value) {
    put_text(pairs, key);
    put(pairs, type);
    pairs += value;
    ++n_pairs;
    return *this;
  }

  // Appends zeros or these bytes. shape: [rows, columns].
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                      size_t bytes) {
    return tensor(name, shape, type, std::string(bytes, '\0'));
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                      const std::string& bytes) {
    info(name, shape, type, data.size());
    data += bytes;
    data.resize((data.size() + 31) / 32 * 32);
    return *this;
  }
  GgufBuilder& floats(std::string_view name, const std::vector<uint64_t>& shape) {
    size_t bytes = 4;
    for (const uint64_t size : shape) bytes *= size;
    return tensor(name, shape, 0, bytes);
  }
  GgufBuilder& info(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                    uint64_t offset) {
    put_text(infos, name);
    put(infos, static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) put(infos, shape[i]);
    put(infos, type);
    put(infos, offset);
    ++n_tensors;
    return *this;
  }

  std::string bytes() const {
    std::string out = "GGUF";
    put(out, version);
    put(out, n_tensors);
    put(out, n_pairs);
    out += pairs + infos;
    if (!data.empty()) out.resize((out.size() + 31) / 32 * 32);
    return out + data;
  }

  uint32_t version = 3;
  uint64_t n_tensors = 0, n_pairs = 0;
  std::string pairs, infos, data;

 private:
  template <class T>
  static std::string bytes_of(T value) {
    std::string out;
    put(out, value);
    return out;
  }
  template <class T>
  static std::string all_of(const std::vector<T>& values) {
    std::string out;
    for (const T value : values) put(out, value);
    return out;
  }
};

inline GgufFile parse_gguf(const std::string& bytes) {
  return lariat::parse_gguf(std::as_bytes(std::span(bytes)), "m.gguf");
}

// Two layers, hidden 32, 4 heads of 8, 2 KV heads, 64 tokens.
inline GgufBuilder small_gguf(const std::string& arch) {
  GgufBuilder b;
  b.set("general.architecture", arch.c_str());
  const auto set = [&](const char* key, auto value) { b.set(arch + "." + key, value); };
  set("context_length", 128U);
  set("embedding_length", 32U);
  set("block_count", 2U);
  set("feed_forward_length", 64U);
  set("attention.head_count", 4U);
  set("attention.head_count_kv", 2U);
  set("attention.layer_norm_rms_epsilon", 1e-5F);
  set("rope.freq_base", 10000.0F);
  b.floats("token_embd.weight", {64, 32});
  return b;
}

}  // namespace lariat::test
