#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kernels/error.h"

namespace lariat::tok {

// A value inside a JSON file that knows where it stands, so that every complaint names file and key.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& file, std::string path = "")
      : value_(&value), file_(&file), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(*file_ + ": key '" + (path_.empty() ? "(top level)" : path_) + "': " + what);
  }

  const nlohmann::json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  std::string where() const { return *file_ + ": key '" + path_ + "'"; }
  bool is_null() const { return value_->is_null(); }

  // The member `key`; a JSON null when it is absent.
  JsonNode operator[](const char* key) const {
    static const nlohmann::json null;
    if (!value_->is_object()) fail("expected an object");
    const auto it = value_->find(key);
    return {it == value_->end() ? null : *it, *file_, path_.empty() ? key : path_ + "." + key};
  }
  JsonNode operator[](size_t index) const {
    return {(*value_)[index], *file_, path_ + "[" + std::to_string(index) + "]"};
  }

  // Number of elements of an array.
  size_t size() const {
    if (!value_->is_array()) fail("expected an array");
    return value_->size();
  }
  const std::string& string() const {
    if (!value_->is_string()) fail("expected a string");
    return value_->get_ref<const std::string&>();
  }
  bool boolean(bool if_absent) const {
    if (is_null()) return if_absent;
    if (!value_->is_boolean()) fail("expected true or false");
    return value_->get<bool>();
  }
  // An integer in [0, limit).
  int64_t integer(int64_t limit) const {
    const bool fits = value_->is_number_unsigned() && value_->get<uint64_t>() < static_cast<uint64_t>(limit);
    if (!fits) fail("expected an integer from 0 to " + std::to_string(limit - 1));
    return value_->get<int64_t>();
  }
  // The "type" of a component, which must be one of `supported`.
  const std::string& type(std::initializer_list<std::string_view> supported) const {
    const std::string& type = (*this)["type"].string();
    std::string list;
    for (std::string_view name : supported) {
      if (type == name) return type;
      list += (list.empty() ? "" : ", ") + std::string(name);
    }
    (*this)["type"].fail("'" + type.substr(0, 60) + "' is not supported; lariat knows " + list);
  }

 private:
  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

// Reads the flags of an added token; its content and id are the caller's.
struct AddedToken;
AddedToken read_added_token(const JsonNode& node);

}  // namespace lariat::tok
