#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lariat {

inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// Reads a JSON object of at most kMaxConfigBytes. Throws Error.
nlohmann::json read_json_object(const std::filesystem::path& file);

// Parses the text of a file `name`. NaN, Infinity and numbers beyond a double become strings.
nlohmann::json parse_json_object(std::string_view text, const std::string& name);

// False for null, false, 0 and an empty list, object or string, which mostly mean a missing key.
bool is_set(const nlohmann::json* value);

// True if `names`, separated by spaces, contains `name`.
bool has_name(std::string_view names, std::string_view name);
// Like has_name, where * at the beginning or end matches anything.
bool has_match(std::string_view names, std::string_view name);

// Returns at least one part; the parts point into `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

// Members of a JSON object of an untrusted file. A missing or null key reads as nullopt, or is an Error if
// required. A wrong type or a value outside [lo, hi] is an Error. Copies share the record of read keys.
class JsonFields {
 public:
  // Error line about the member `path` ("rope_scaling.factor", "decoder.decoders[3].type"; "": the object
  // itself); value: nullptr if missing.
  using Wording = std::function<std::string(const std::string& file, const std::string& path,
                                            const nlohmann::json* value, const std::string& what)>;
  // FILE: "PATH" is VALUE; WHAT
  static std::string with_value(const std::string& file, const std::string& path, const nlohmann::json* value,
                                const std::string& what);
  // FILE: key 'PATH': WHAT. For files whose values are too long to show.
  static std::string with_key(const std::string& file, const std::string& path, const nlohmann::json* value,
                              const std::string& what);

  // `object` must outlive this. prefix: "rope_scaling." or "". Throws Error for other types.
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix = "",
             Wording wording = with_value);

  bool present(std::string_view key) const;  // null included
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const nlohmann::json* find(std::string_view key) const;    // nullptr: missing or null
  void mark_read(std::string_view key) const { find(key); }  // marks a key without effect as read

  std::optional<int64_t> integer(std::string_view key, int64_t lo, int64_t hi) const;
  std::optional<double> number(std::string_view key, double lo, double hi) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key, double lo, double hi) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  // One integer or a list.
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t lo, int64_t hi) const;
  std::optional<JsonFields> object(std::string_view key) const;
  std::optional<std::vector<JsonFields>> objects(std::string_view key) const;  // a list of objects

  // Throw Error if missing.
  int64_t need_integer(std::string_view key, int64_t lo, int64_t hi) const {
    return need(key, integer(key, lo, hi), "an integer");
  }
  double need_number(std::string_view key, double lo, double hi) const {
    return need(key, number(key, lo, hi), "a number");
  }
  bool need_boolean(std::string_view key) const { return need(key, boolean(key), "true or false"); }
  std::string need_string(std::string_view key) const { return need(key, string(key), "a string"); }
  JsonFields need_object(std::string_view key) const { return need(key, object(key), "an object"); }
  std::vector<JsonFields> need_objects(std::string_view key) const {
    return need(key, objects(key), "a list of objects");
  }

  std::vector<std::string> keys() const;
  std::vector<std::string> unread_keys() const;
  bool holds_object(std::string_view key) const;  // does not mark the key as read
  const std::string& file() const { return file_; }
  std::string path(std::string_view key) const { return prefix_ + std::string(key); }

  // Error line in this file's wording; fail() throws it.
  std::string message(std::string_view key, const std::string& what) const;
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

 private:
  template <class T, class Convert>
  std::optional<T> read(std::string_view key, const Convert& convert, const std::string& expected) const;
  template <class T>
  T need(std::string_view key, std::optional<T> value, const char* expected) const {
    if (!value) fail(key, std::string("expected ") + expected);
    return *std::move(value);
  }
  const nlohmann::json* list(std::string_view key, const char* of) const;  // nullptr: missing or null

  const nlohmann::json* object_;
  std::shared_ptr<std::set<std::string, std::less<>>> read_keys_;
  std::string file_, prefix_;
  Wording wording_;
};

}  // namespace lariat
