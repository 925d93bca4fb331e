#include "models/text/jinja_context.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

constexpr int kMaxDepth = 64;  // nested lists: functions on them are recursive
constexpr uint64_t kItemBytes = sizeof(Value);

int depth_of(const Value& v) {
  if (is_sequence(v)) return v.as<Sequence>().depth;
  return v.is(Kind::kDict) ? v.as<Dict>().depth : 0;
}

void contain(const Value& v, int& depth) {
  if (!is_plain(v)) {
    const char* what = v.is(Kind::kNamespace) ? "namespace" : v.is(Kind::kMacro) ? "macro" : "loop";
    throw Failure(fmt::format("a {} in a list, tuple or dict is not supported", what));
  }
  depth = std::max(depth, depth_of(v) + 1);
  if (depth > kMaxDepth) throw Failure(fmt::format("lists or dicts nested deeper than {} levels", kMaxDepth));
}

std::string text_repr(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const std::string_view part : chars(text)) {
    const char32_t c = utf8_step(part, 0).value;
    const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool hidden = kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_ZS;  // Z* and C*
    if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c != ' ' && hidden) {
      throw Failure(fmt::format("a list or dict with the character U+{:04X} cannot be printed; use tojson",
                                static_cast<uint32_t>(c)));
    } else {
      if (c == static_cast<char32_t>(quote) || c == '\\') out += '\\';
      out += part;
    }
  }
  return out + quote;
}

std::string float_repr(double d) {
  std::string out = fmt::format("{}", d);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";  // n: inf and nan
  return out;
}

// Writes Python's repr() or json.dumps(), with `indent` or, below 0, on one line.
class Writer {
 public:
  Writer(Context& cx, bool json, int64_t indent) : cx_(cx), json_(json), indent_(indent) {}

  std::string run(const Value& v) {
    write(v);
    return std::move(out_);
  }

 private:
  void new_line() {
    if (indent_ < 0) return;
    const auto width = static_cast<size_t>(indent_ * depth_);
    cx_.charge(width);
    out_ += '\n' + std::string(width, ' ');
  }

  template <class Items, class Write>
  void write_all(const char* open, const char* close, const Items& items, const Write& write_one) {
    out_ += open;
    ++depth_;
    for (const auto& item : items) {
      if (&item != &items.front()) out_ += indent_ < 0 ? ", " : ",";
      new_line();
      write_one(item);
    }
    --depth_;
    if (!items.empty()) new_line();
    out_ += close;
  }

  std::string scalar(const Value& v) const {
    if (v.is(Kind::kNone)) return json_ ? "null" : "None";
    if (v.is(Kind::kBool)) return json_ ? (v.boolean ? "true" : "false") : (v.boolean ? "True" : "False");
    if (v.is(Kind::kInteger)) return std::to_string(v.integer);
    if (v.is(Kind::kUndefined) && !json_) return "Undefined";
    if (v.is(Kind::kFloat) && (!json_ || std::isfinite(v.real))) return float_repr(v.real);
    if (!is_text(v)) throw Failure(fmt::format("a '{}' cannot be printed or is not JSON", type_name(v)));
    cx_.reserve_text(6 * text_of(v).size());
    return json_ ? nlohmann::json(text_of(v)).dump() : text_repr(text_of(v));
  }

  void write(const Value& v) {
    cx_.step();
    const size_t before = out_.size();
    const auto one = [&](const Value& item) { write(item); };
    if (v.is(Kind::kList) || (v.is(Kind::kTuple) && json_)) {
      write_all("[", "]", items_of(v), one);
    } else if (v.is(Kind::kTuple)) {
      write_all("(", items_of(v).size() == 1 ? ",)" : ")", items_of(v), one);
    } else if (v.is(Kind::kDict)) {
      write_all("{", "}", v.as<Dict>().members, [&](const auto& member) {
        if (json_ && !is_text(member.first)) throw Failure("tojson of a dict with keys that are not texts");
        write(member.first);
        out_ += ": ";
        write(member.second);
      });
    } else {
      out_ += scalar(v);
    }
    cx_.reserve_text(out_.size(), out_.size() - before);
  }

  Context& cx_;
  bool json_;
  int64_t indent_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

Value none() { return {.kind = Kind::kNone, .integer = 0}; }
Value boolean(bool b) { return {.kind = Kind::kBool, .boolean = b}; }
Value integer(int64_t i) { return {.kind = Kind::kInteger, .integer = i}; }
Value real(double d) { return {.kind = Kind::kFloat, .real = d}; }
Value undefined(std::string what) { return with_object<Text>(Kind::kUndefined, std::move(what)); }
Value constant_text(std::string text) { return with_object<Text>(Kind::kText, std::move(text)); }

Value make_text(Context& cx, std::string text) {
  cx.reserve_text(text.size() + kItemBytes);
  return with_object<Text>(Kind::kText, std::move(text));
}

Value make_sequence(Context& cx, Kind kind, std::vector<Value> items) {
  cx.charge((items.size() + 2) * kItemBytes);
  Sequence sequence;
  for (const Value& item : items) contain(item, sequence.depth);
  sequence.items = std::move(items);
  return with_object(kind, std::move(sequence));
}

Value make_dict(Context& cx, std::vector<std::pair<Value, Value>> members) {
  cx.charge((members.size() + 1) * 2 * kItemBytes);
  Dict dict;
  for (const auto& [key, value] : members) {
    contain(key, dict.depth);
    contain(value, dict.depth);
  }
  dict.members = std::move(members);
  return with_object(Kind::kDict, std::move(dict));
}

Value from_json(Context& cx, const nlohmann::ordered_json& json) {
  if (json.is_null()) return none();
  if (json.is_boolean()) return boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    throw Failure(fmt::format("the integer {} does not fit into 64 bits", json.get<uint64_t>()));
  if (json.is_number_integer()) return integer(json.get<int64_t>());
  if (json.is_number_float()) return real(json.get<double>());
  if (json.is_string()) return make_text(cx, json.get<std::string>());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const auto& item : json) items.push_back(from_json(cx, item));
    return make_sequence(cx, Kind::kList, std::move(items));
  }
  std::vector<std::pair<Value, Value>> members;
  for (const auto& [key, value] : json.items())
    members.emplace_back(make_text(cx, key), from_json(cx, value));
  return make_dict(cx, std::move(members));
}

bool is_sequence(const Value& v) { return v.kind >= Kind::kList && v.kind <= Kind::kIterator; }
bool is_integral(const Value& v) { return v.is(Kind::kBool) || v.is(Kind::kInteger); }
bool is_number(const Value& v) { return is_integral(v) || v.is(Kind::kFloat); }
int64_t integral(const Value& v) { return v.is(Kind::kBool) ? static_cast<int64_t>(v.boolean) : v.integer; }
double to_double(const Value& v) { return v.is(Kind::kFloat) ? v.real : static_cast<double>(integral(v)); }

long double exact(const Value& v) {
  return v.is(Kind::kFloat) ? static_cast<long double>(v.real) : static_cast<long double>(integral(v));
}

bool is_plain(const Value& v) { return v.kind < Kind::kNamespace || v.is(Kind::kFunction); }

const char* type_name(const Value& v) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool",  "int",         "float",
                                           "str",       "list",      "tuple", "view",        "generator",
                                           "dict",      "Namespace", "Macro", "LoopContext", "function"};
  return kNames[static_cast<size_t>(v.kind)];
}

bool truth(const Value& v) {
  if (v.is(Kind::kUndefined) || v.is(Kind::kNone)) return false;
  if (is_number(v)) return to_double(v) != 0;
  if (is_text(v)) return !text_of(v).empty();
  if (v.is(Kind::kDict)) return !v.as<Dict>().members.empty();
  return !is_sequence(v) || v.is(Kind::kIterator) || !items_of(v).empty();
}

std::string to_text(Context& cx, const Value& v) {
  if (v.is(Kind::kUndefined)) return "";
  if (!is_text(v)) return Writer(cx, false, -1).run(v);
  cx.reserve_text(text_of(v).size());
  return text_of(v);
}

std::string to_json(Context& cx, const Value& v, int64_t indent) { return Writer(cx, true, indent).run(v); }

bool equal(Context& cx, const Value& a, const Value& b) {
  cx.step();
  if (is_number(a) && is_number(b)) return exact(a) == exact(b);
  if (a.kind != b.kind) return false;
  if (a.is(Kind::kUndefined) || a.is(Kind::kNone)) return true;
  if (is_text(a)) {
    if (text_of(a).size() != text_of(b).size()) return false;
    cx.charge(text_of(a).size());
    return text_of(a) == text_of(b);
  }
  if (a.is(Kind::kList) || a.is(Kind::kTuple)) {
    return std::equal(items_of(a).begin(), items_of(a).end(), items_of(b).begin(), items_of(b).end(),
                      [&](const Value& p, const Value& q) { return equal(cx, p, q); });
  }
  if (a.is(Kind::kDict)) {
    const auto& members = a.as<Dict>().members;
    return members.size() == b.as<Dict>().members.size() &&
           std::all_of(members.begin(), members.end(), [&](const auto& member) {
             const Value* other = find(cx, b.as<Dict>(), member.first);
             return other && equal(cx, member.second, *other);
           });
  }
  throw Failure(fmt::format("'==' between two values of '{}' is not supported", type_name(a)));
}

int64_t length(Context& cx, const Value& v) {
  if (v.is(Kind::kUndefined)) return 0;
  if (is_text(v)) {
    cx.charge(text_of(v).size());
    return count_chars(text_of(v));
  }
  if (v.is(Kind::kDict)) return static_cast<int64_t>(v.as<Dict>().members.size());
  if (!is_sequence(v) || v.is(Kind::kIterator))
    throw Failure(fmt::format("a '{}' has no length", type_name(v)));
  return static_cast<int64_t>(items_of(v).size());
}

Value to_sequence(Context& cx, const Value& v) {
  std::vector<Value> items;
  if (v.is(Kind::kIterator)) {
    if (std::exchange(v.as<Sequence>().taken, true))
      throw Failure("the result of a filter is used twice; make it a list first");
    return v;
  } else if (is_sequence(v)) {
    return v;
  } else if (is_text(v)) {
    cx.charge(text_of(v).size() * sizeof(std::string_view));
    for (const std::string_view c : chars(text_of(v))) items.push_back(make_text(cx, std::string(c)));
  } else if (v.is(Kind::kDict)) {
    for (const auto& [key, value] : v.as<Dict>().members) items.push_back(key);
  } else if (!v.is(Kind::kUndefined)) {
    throw Failure(fmt::format("a '{}' cannot be iterated", type_name(v)));
  }
  return make_sequence(cx, Kind::kList, std::move(items));
}

Value* find(Context& cx, const Dict& dict, const Value& key) {
  if (is_text(key)) return find(cx, dict, text_of(key));
  if (is_sequence(key) || key.is(Kind::kDict)) {
    if (!key.is(Kind::kTuple))
      throw Failure(fmt::format("a '{}' cannot be the key of a dict", type_name(key)));
  }
  for (const auto& member : dict.members) {
    if (equal(cx, member.first, key)) return const_cast<Value*>(&member.second);
  }
  return nullptr;
}

Value* find(Context& cx, const Dict& dict, std::string_view key) {
  cx.step(dict.members.size() / 16);
  cx.charge(dict.members.size() * key.size() / 8);
  for (const auto& [name, value] : dict.members) {
    if (is_text(name) && text_of(name) == key) return const_cast<Value*>(&value);
  }
  return nullptr;
}

void put(Context& cx, Dict& dict, const Value& key, const Value& value) {
  contain(key, dict.depth);
  contain(value, dict.depth);
  if (Value* old = find(cx, dict, key)) {
    *old = value;
    return;
  }
  cx.charge(2 * kItemBytes);
  dict.members.emplace_back(key, value);
}

void fail_undefined(const Value& v) { throw Failure(v.object ? text_of(v) : "a value is undefined"); }

std::vector<std::string_view> chars(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size();) {
    all.push_back(text.substr(at, utf8_step(text, at).length));
    at += all.back().size();
  }
  return all;
}

size_t find_in(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* at = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

std::string_view strip(std::string_view text, const std::string* set, bool left, bool right) {
  const auto goes = [&](std::string_view character) {
    return set ? set->find(character) != std::string::npos : is_python_space(utf8_step(character, 0).value);
  };
  return lariat::strip(text, goes, left, right);
}

}  // namespace lariat::jinja
