#include "models/io/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "kernels/error.h"
#include "models/io/json_file.h"

namespace lariat {
namespace {

using Json = nlohmann::json;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::optional<int64_t> integer_in(const Json& value, int64_t lo, int64_t hi) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  const int64_t i = value.get<int64_t>();
  return i >= lo && i <= hi ? std::optional(i) : std::nullopt;
}

std::optional<double> number_in(const Json& value, double lo, double hi) {
  if (!value.is_number()) return std::nullopt;
  const double d = value.get<double>();
  return std::isfinite(d) && d >= lo && d <= hi ? std::optional(d) : std::nullopt;
}

std::string range(int64_t lo, int64_t hi) { return fmt::format("an integer from {} to {}", lo, hi); }
std::string range(double lo, double hi) { return fmt::format("a number from {:.10g} to {:.10g}", lo, hi); }

// Quotes NaN, Infinity and numbers beyond a double, which Python writes: only reading a number fails.
std::string with_quoted_infinities(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string || (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-')) {
      if (c == '"') in_string = !in_string;
      out += c;
      if (in_string && c == '\\' && i + 1 < text.size()) out += text[++i];
      continue;
    }
    const size_t end = std::min(text.find_first_of(",]} \t\r\n:\"[{", i), text.size());
    const std::string word(text.substr(i, end - i));
    const bool no_json = word == "NaN" || word == "Infinity" || word == "-Infinity";
    char* rest = nullptr;
    const bool too_large = word.find_first_not_of("0123456789+-.eE") == std::string::npos &&
                           std::isinf(std::strtod(word.c_str(), &rest)) && *rest == '\0';
    out += no_json || too_large ? '"' + word + '"' : word;
    i = end - 1;
  }
  return out;
}

}  // namespace

Json read_json_object(const std::filesystem::path& file) {
  return parse_json_object(read_file(file, kMaxConfigBytes), file.string());
}

Json parse_json_object(std::string_view text, const std::string& name) {
  Json value = parse_json(with_quoted_infinities(text), name);
  const JsonFields checked(value, name);
  return value;
}

bool is_set(const Json* value) {
  return value != nullptr && !value->empty() && *value != false && *value != 0 && *value != Json("");
}

bool has_name(std::string_view names, std::string_view name) {
  return (" " + std::string(names) + " ").find(" " + std::string(name) + " ") != std::string::npos;
}

bool has_match(std::string_view names, std::string_view name) {
  return std::ranges::any_of(split(names, ' '), [&](std::string_view each) {
    if (each.starts_with('*')) return name.ends_with(each.substr(1));
    if (each.ends_with('*')) return name.starts_with(each.substr(0, each.size() - 1));
    return name == each;
  });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0, end = 0; end != std::string_view::npos; at = end + 1) {
    end = text.find(separator, at);
    parts.push_back(text.substr(at, end - at));
  }
  return parts;
}

std::string JsonFields::with_value(const std::string& file, const std::string& path, const Json* value,
                                   const std::string& what) {
  if (path.empty() && value != nullptr)
    return fmt::format("{}: holds {}; expected a JSON object", file, shown(*value));
  if (value == nullptr) return fmt::format("{}: \"{}\" is missing; {}", file, path, what);
  return fmt::format("{}: \"{}\" is {}; {}", file, path, shown(*value), what);
}

std::string JsonFields::with_key(const std::string& file, const std::string& path, const Json* /*value*/,
                                 const std::string& what) {
  return fmt::format("{}: key '{}': {}", file, path.empty() ? "(top level)" : path, what);
}

JsonFields::JsonFields(const Json& object, std::string file, std::string prefix, Wording wording)
    : object_(&object),
      read_keys_(std::make_shared<std::set<std::string, std::less<>>>()),
      file_(std::move(file)),
      prefix_(std::move(prefix)),
      wording_(std::move(wording)) {
  if (object.is_object()) return;
  if (!prefix_.empty()) prefix_.pop_back();  // the prefix's dot
  throw Error(wording_(file_, prefix_, &object, "expected an object"));
}

const Json* JsonFields::find(std::string_view key) const {
  read_keys_->emplace(key);
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::present(std::string_view key) const { return object_->contains(std::string(key)); }

std::string JsonFields::message(std::string_view key, const std::string& what) const {
  const auto it = object_->find(std::string(key));
  return wording_(file_, path(key), it == object_->end() ? nullptr : &*it, what);
}

void JsonFields::fail(std::string_view key, const std::string& what) const {
  throw Error(message(key, what));
}

template <class T, class Convert>
std::optional<T> JsonFields::read(std::string_view key, const Convert& convert,
                                  const std::string& expected) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<T> got = convert(*value);
  if (!got) fail(key, "expected " + expected);
  return got;
}

std::optional<int64_t> JsonFields::integer(std::string_view key, int64_t lo, int64_t hi) const {
  return read<int64_t>(
      key, [&](const Json& v) { return integer_in(v, lo, hi); }, range(lo, hi));
}

std::optional<double> JsonFields::number(std::string_view key, double lo, double hi) const {
  return read<double>(
      key, [&](const Json& v) { return number_in(v, lo, hi); }, range(lo, hi));
}

std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const auto convert = [](const Json& v) {
    return v.is_boolean() ? std::optional(v.get<bool>()) : std::nullopt;
  };
  return read<bool>(key, convert, "true or false");
}

std::optional<std::string> JsonFields::string(std::string_view key) const {
  const auto convert = [](const Json& v) {
    return v.is_string() ? std::optional(v.get<std::string>()) : std::nullopt;
  };
  return read<std::string>(key, convert, "a string");
}

const Json* JsonFields::list(std::string_view key, const char* of) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_array()) fail(key, fmt::format("expected a list of {}", of));
  return value;
}

std::optional<std::vector<double>> JsonFields::numbers(std::string_view key, double lo, double hi) const {
  const Json* items = list(key, "numbers");
  if (items == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& item : *items) {
    const auto got = number_in(item, lo, hi);
    if (!got)
      fail(key, fmt::format("item {} is {}, expected {}", numbers.size(), shown(item), range(lo, hi)));
    numbers.push_back(*got);
  }
  return numbers;
}

std::optional<std::vector<std::string>> JsonFields::strings(std::string_view key) const {
  const Json* items = list(key, "strings");
  if (items == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  for (const Json& item : *items) {
    if (!item.is_string())
      fail(key, fmt::format("item {} is not a string; expected strings", strings.size()));
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::optional<std::vector<int64_t>> JsonFields::integers(std::string_view key, int64_t lo, int64_t hi) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> list;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    const auto got = integer_in(item, lo, hi);
    if (!got) fail(key, fmt::format("expected {}, or a list of such integers", range(lo, hi)));
    list.push_back(*got);
  }
  return list;
}

std::optional<JsonFields> JsonFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(key, "expected an object");
  return JsonFields(*value, file_, path(key) + ".", wording_);
}

std::optional<std::vector<JsonFields>> JsonFields::objects(std::string_view key) const {
  const Json* items = list(key, "objects");
  if (items == nullptr) return std::nullopt;
  std::vector<JsonFields> objects;
  for (const Json& item : *items)
    objects.emplace_back(item, file_, fmt::format("{}[{}].", path(key), objects.size()), wording_);
  return objects;
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_->items()) names.push_back(key);
  return names;
}

std::vector<std::string> JsonFields::unread_keys() const {
  std::vector<std::string> names = keys();
  std::erase_if(names, [&](const std::string& name) { return read_keys_->contains(name); });
  return names;
}

bool JsonFields::holds_object(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it != object_->end() && it->is_object();
}

}  // namespace lariat
