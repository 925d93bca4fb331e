#include "models/io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "kernels/error.h"
#include "models/io/text_file.h"

namespace lariat {
namespace {

constexpr int kMaxJsonDepth = 64;
// Four times the largest vocabularies known (256 k tokens, 600 k merges in lists of two).
constexpr size_t kMaxKeys = size_t{1} << 21, kMaxValues = size_t{1} << 23;
constexpr size_t kMaxOrderedKeys = 128;  // per object

// Bounds depth and number of values: nlohmann's parser destroys deep values recursively and needs 16 to 100
// bytes per value. Returns the number of keys (colons outside strings). most: the largest number in one
// object.
size_t check_outline(std::string_view text, const std::string& name, size_t* most = nullptr) {
  size_t keys = 0, commas = 0;
  size_t keys_of[kMaxJsonDepth + 1] = {};
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        throw Error(fmt::format("{}: JSON nested deeper than {} levels, more than any checkpoint has", name,
                                kMaxJsonDepth));
      }
      if (depth > 0) keys_of[depth] = 0;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ':') {
      ++keys;
      if (most && depth > 0) *most = std::max(*most, ++keys_of[depth]);
    } else if (c == ',') {
      ++commas;
    }
  }
  if (keys > kMaxKeys || commas > kMaxValues) {
    throw Error(
        fmt::format("{}: {} values in one file, more than any checkpoint has", name, std::max(keys, commas)));
  }
  return keys;
}

template <class Json>
size_t count_members(const Json& value) {
  size_t count = value.is_object() ? value.size() : 0;
  if (value.is_structured()) {
    for (const auto& inner : value) count += count_members(inner);
  }
  return count;
}

[[noreturn]] void name_repeated_key(std::string_view text, const std::string& name) {
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int /*depth*/, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second)
      throw Error(fmt::format("{}: the key \"{:.60}\" occurs twice in one object; remove one", name,
                              value.get<std::string>()));
    return true;
  };
  const nlohmann::json unused = nlohmann::json::parse(text, watch);
  throw Error(name + ": a key occurs twice in one object; remove one");
}

template <class Json>
Json parse(std::string_view text, const std::string& name, size_t keys) {
  Json value;
  try {
    value = Json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    std::string what = e.what();
    // Drops nlohmann's prefix "[json.exception.parse_error.101] ".
    if (const size_t end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    for (char& c : what) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    throw Error(fmt::format("{}: not valid JSON ({})", name, what.substr(0, 200)));
  }
  // The parser keeps one of two equal keys.
  if (count_members(value) != keys) name_repeated_key(text, name);
  return value;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  text = without_bom(text, name);
  return parse<nlohmann::json>(text, name, check_outline(text, name));
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name) {
  text = without_bom(text, name);
  size_t most = 0;
  const size_t keys = check_outline(text, name, &most);
  if (most > kMaxOrderedKeys) {
    throw Error(
        fmt::format("{}: {} keys in one object, more than the limit of {}", name, most, kMaxOrderedKeys));
  }
  return parse<nlohmann::ordered_json>(text, name, keys);
}

nlohmann::json read_json(const std::filesystem::path& file) {
  return parse_json(read_file(file, kMaxJsonBytes), input_name(file));
}

}  // namespace lariat
