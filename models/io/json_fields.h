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

// A small JSON file (kMaxConfigBytes at most) whose outermost value is an object and in which no object names
// a key twice. Throws Error naming the file.
nlohmann::json read_json_object(const std::filesystem::path& file);

// Parses such a text in memory; `name` stands for the file in errors. NaN and Infinity, and numbers beyond a
// double, become strings.
nlohmann::json parse_json_object(std::string_view text, const std::string& name);

// Whether there is a value, and neither null, false, 0 nor an empty list, object or text, which mostly say no
// more than a key that is not there.
bool is_set(const nlohmann::json* value);

// Whether `names`, with a space between them, has this one: for lists of keys.
bool has_name(std::string_view names, std::string_view name);
// The same for names in which a * in front or at the end stands for anything.
bool has_match(std::string_view names, std::string_view name);

// The parts of `text` between the separators, at least one; they point into it.
std::vector<std::string_view> split(std::string_view text, char separator);

// The members of one JSON object of an untrusted file. A key that is absent or null reads as nullopt, or is
// an Error where it is needed; a value of the wrong type or outside [lo, hi] is an Error of one line that
// names the file and the key. The object remembers which of its keys were asked for, so that a reader can say
// what it passed over; copies share that memory.
class JsonFields {
 public:
  // The line that an Error is made of: something is wrong with the member `path` ("rope_scaling.factor",
  // "decoder.decoders[3].type"; "": the object itself) of `file`, whose value is null where there is none.
  using Wording = std::function<std::string(const std::string& file, const std::string& path,
                                            const nlohmann::json* value, const std::string& what)>;
  // FILE: "PATH" is VALUE; WHAT
  static std::string with_value(const std::string& file, const std::string& path, const nlohmann::json* value,
                                const std::string& what);
  // FILE: key 'PATH': WHAT. For files whose values are too long to show.
  static std::string with_key(const std::string& file, const std::string& path, const nlohmann::json* value,
                              const std::string& what);

  // `object` must outlive this. `prefix` names it inside the file: "rope_scaling." or "". Throws Error when
  // it is no object.
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix = "",
             Wording wording = with_value);

  bool present(std::string_view key) const;  // there, null included
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const nlohmann::json* find(std::string_view key) const;    // nullptr: absent or null
  void pass_over(std::string_view key) const { find(key); }  // its value changes nothing here

  std::optional<int64_t> integer(std::string_view key, int64_t lo, int64_t hi) const;
  std::optional<double> number(std::string_view key, double lo, double hi) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key, double lo, double hi) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  // One integer or a list of them, as eos_token_id may be.
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t lo, int64_t hi) const;
  std::optional<JsonFields> object(std::string_view key) const;
  std::optional<std::vector<JsonFields>> objects(std::string_view key) const;  // a list of objects

  // Reads a key without which the file is of no use.
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
  // The keys of which no value was asked for so far, in the object's order.
  std::vector<std::string> unread_keys() const;
  bool holds_object(std::string_view key) const;  // which is not to ask for it
  const std::string& file() const { return file_; }
  std::string path(std::string_view key) const { return prefix_ + std::string(key); }

  // The line that says what is wrong, in the wording of this object's file; fail() throws it as an Error.
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
  const nlohmann::json* list(std::string_view key, const char* of) const;  // nullptr: absent or null

  const nlohmann::json* object_;
  std::shared_ptr<std::set<std::string, std::less<>>> read_keys_;
  std::string file_, prefix_;
  Wording wording_;
};

}  // namespace lariat
