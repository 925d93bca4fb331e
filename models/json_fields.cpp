#include "models/json_fields.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "kernels/error.h"
#include "models/json_file.h"

namespace lariat {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

std::optional<int64_t> integer_in(const json& value, int64_t lo, int64_t hi) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  const int64_t i = value.get<int64_t>();
  return i >= lo && i <= hi ? std::optional(i) : std::nullopt;
}

std::optional<double> number_in(const json& value, double lo, double hi) {
  if (!value.is_number()) return std::nullopt;
  const double d = value.get<double>();
  return std::isfinite(d) && d >= lo && d <= hi ? std::optional(d) : std::nullopt;
}

std::string range(int64_t lo, int64_t hi) {
  return "an integer from " + std::to_string(lo) + " to " + std::to_string(hi);
}

std::string range(double lo, double hi) { return "a number from " + shown(lo) + " to " + shown(hi); }

}  // namespace

json read_json_object(const std::filesystem::path& file) {
  return parse_json_object(read_file(file, kMaxConfigBytes), file.string());
}

json parse_json_object(std::string_view text, const std::string& name) {
  json value = parse_json(text, name);
  if (!value.is_object()) throw Error(name + ": holds " + shown(value) + "; expected a JSON object");
  return value;
}

JsonFields::JsonFields(const json& object, std::string file, std::string prefix)
    : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)) {
  if (!object.is_object()) throw Error(file_ + ": holds " + shown(object) + "; expected a JSON object");
}

const json* JsonFields::find(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::present(std::string_view key) const { return object_->contains(std::string(key)); }
bool JsonFields::has(std::string_view key) const { return find(key) != nullptr; }

void JsonFields::fail(std::string_view key, const std::string& what) const {
  const json* value = find(key);
  std::string line = file_ + ": \"" + prefix_ + std::string(key) + "\" ";
  if (value != nullptr) {
    line += "is " + shown(*value) + "; ";
  } else {
    line += present(key) ? "is null; " : "is missing; ";
  }
  throw Error(line + what);
}

std::optional<int64_t> JsonFields::integer(std::string_view key, int64_t lo, int64_t hi) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto got = integer_in(*value, lo, hi);
  if (!got) fail(key, "expected " + range(lo, hi));
  return got;
}

std::optional<double> JsonFields::number(std::string_view key, double lo, double hi) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto got = number_in(*value, lo, hi);
  if (!got) fail(key, "expected " + range(lo, hi));
  return got;
}

std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(key, "expected true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, "expected a string");
  return value->get<std::string>();
}

std::optional<std::vector<double>> JsonFields::numbers(std::string_view key, double lo, double hi) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail(key, "expected a list of numbers");
  std::vector<double> list;
  for (const json& item : *value) {
    const auto got = number_in(item, lo, hi);
    if (!got)
      fail(key, "item " + std::to_string(list.size()) + " is " + shown(item) + ", expected " + range(lo, hi));
    list.push_back(*got);
  }
  return list;
}

std::optional<std::vector<std::string>> JsonFields::strings(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail(key, "expected a list of strings");
  std::vector<std::string> list;
  for (const json& item : *value) {
    if (!item.is_string()) fail(key, "item " + std::to_string(list.size()) + " is not a string");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::optional<std::vector<int64_t>> JsonFields::integers(std::string_view key, int64_t lo, int64_t hi) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> list;
  const auto take = [&](const json& item) {
    const auto got = integer_in(item, lo, hi);
    if (!got) fail(key, "expected " + range(lo, hi) + ", or a list of such integers");
    list.push_back(*got);
  };
  if (value->is_array()) {
    for (const json& item : *value) take(item);
  } else {
    take(*value);
  }
  return list;
}

std::optional<JsonFields> JsonFields::object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(key, "expected an object");
  return JsonFields(*value, file_, prefix_ + std::string(key) + ".");
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_->items()) names.push_back(key);
  return names;
}

bool JsonFields::holds_object(std::string_view key) const {
  const json* value = find(key);
  return value != nullptr && value->is_object();
}

}  // namespace lariat
