#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lariat {

inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// A small JSON file (kMaxConfigBytes at most) whose outermost value is an object and in which no object names
// a key twice. Throws Error naming the file.
nlohmann::json read_json_object(const std::filesystem::path& file);

// The same for text already in memory; `name` stands for the file in errors.
nlohmann::json parse_json_object(std::string_view text, const std::string& name);

// The members of one JSON object of a checkpoint. A key that is absent or null reads as nullopt; a value of
// the wrong type or outside [lo, hi] is an Error of one line that names the file, the key and the value.
class JsonFields {
 public:
  // `prefix` names the object inside the file: "rope_scaling." or "".
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix = "");

  bool present(std::string_view key) const;  // there, null included
  bool has(std::string_view key) const;      // there and not null
  std::optional<int64_t> integer(std::string_view key, int64_t lo, int64_t hi) const;
  std::optional<double> number(std::string_view key, double lo, double hi) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key, double lo, double hi) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  // One integer or a list of them, as eos_token_id may be.
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t lo, int64_t hi) const;
  std::optional<JsonFields> object(std::string_view key) const;

  std::vector<std::string> keys() const;
  bool holds_object(std::string_view key) const;
  const std::string& file() const { return file_; }

  // "FILE: "key" is VALUE; <what>", or without the value when the key is absent.
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

 private:
  const nlohmann::json* find(std::string_view key) const;

  const nlohmann::json* object_;  // outlives this
  std::string file_, prefix_;
};

}  // namespace lariat
