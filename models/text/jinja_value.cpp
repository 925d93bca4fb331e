#include "models/text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/text/jinja_text.h"

namespace lariat::jinja {
namespace {

constexpr int kMaxDepth = 64;  // of lists in lists, as what goes through them calls itself
constexpr uint64_t kItemBytes = sizeof(Value);

int depth_of(const Value& v) {
  if (is_sequence(v)) return v.as<Sequence>().depth;
  return v.is(Kind::kDict) || v.is(Kind::kNamespace) ? v.as<Dict>().depth : 0;
}

void contain(const Value& v, int& depth, bool& plain) {
  depth = std::max(depth, depth_of(v) + 1);
  if (depth > kMaxDepth) throw Failure(fmt::format("lists or dicts nested deeper than {} levels", kMaxDepth));
  plain = plain && is_plain(v);
}

template <class T>
Value with_object(Kind kind, std::shared_ptr<T> object) {
  Value v;
  v.kind = kind;
  v.object = std::move(object);
  return v;
}

Value with_text(Kind kind, std::string text) {
  return with_object(kind, std::make_shared<Text>(std::move(text)));
}

template <class Members, class Print>
std::string list_of(Context& cx, const char* open, const Members& members, const char* close,
                    const Print& print) {
  std::string out = open;
  for (const auto& member : members) {
    if (&member != &members.front()) out += ", ";
    const std::string part = print(member);
    cx.charge(part.size());
    out += part;
  }
  return out + close;
}

}  // namespace

Value none() {
  Value v;
  v.kind = Kind::kNone;
  return v;
}

Value boolean(bool b) {
  Value v;
  v.kind = Kind::kBool;
  v.boolean = b;
  return v;
}

Value integer(int64_t i) {
  Value v;
  v.kind = Kind::kInteger;
  v.integer = i;
  return v;
}

Value real(double d) {
  Value v;
  v.kind = Kind::kFloat;
  v.real = d;
  return v;
}

Value undefined(std::string what) { return with_text(Kind::kUndefined, std::move(what)); }
Value constant_text(std::string text) { return with_text(Kind::kText, std::move(text)); }

Value make_text(Context& cx, std::string text) {
  cx.reserve_text(text.size() + kItemBytes);
  return with_text(Kind::kText, std::move(text));
}

Value make_markup(Context& cx, std::string text) {
  cx.reserve_text(text.size() + kItemBytes);
  return with_text(Kind::kMarkup, std::move(text));
}

Value make_sequence(Context& cx, Kind kind, std::vector<Value> items, std::string name) {
  cx.charge((items.size() + 2) * kItemBytes);
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) contain(item, sequence->depth, sequence->plain);
  sequence->items = std::move(items);
  sequence->name = std::move(name);
  return with_object(kind, std::move(sequence));
}

Value make_dict(Context& cx, std::vector<std::pair<Value, Value>> members) {
  cx.charge((members.size() + 1) * 2 * kItemBytes);
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : members) contain(value, dict->depth, dict->plain);
  dict->members = std::move(members);
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

bool is_plain(const Value& v) {
  if (is_sequence(v)) return v.as<Sequence>().plain;
  if (v.is(Kind::kDict)) return v.as<Dict>().plain;
  return v.kind < Kind::kNamespace || v.is(Kind::kFunction);
}

const char* type_name(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kMarkup:
      return "Markup";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return v.as<Sequence>().name.c_str();
    case Kind::kIterator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
  }
  return "";
}

bool truth(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.boolean;
    case Kind::kInteger:
      return v.integer != 0;
    case Kind::kFloat:
      return v.real != 0;
    case Kind::kText:
    case Kind::kMarkup:
      return !text_of(v).empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return !items_of(v).empty();
    case Kind::kDict:
      return !v.as<Dict>().members.empty();
    default:
      return true;
  }
}

std::string float_repr(double d) {
  std::string out = fmt::format("{}", d);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";  // n: of inf and nan
  return out;
}

std::string to_text(Context& cx, const Value& v) {
  if (v.is(Kind::kUndefined)) return "";
  if (!is_text(v) && !v.is(Kind::kMarkup)) return repr(cx, v);
  cx.reserve_text(text_of(v).size());
  return text_of(v);
}

std::string repr(Context& cx, const Value& v) {
  cx.step();
  const auto one = [&](const Value& item) { return repr(cx, item); };
  switch (v.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return v.boolean ? "True" : "False";
    case Kind::kInteger:
      return std::to_string(v.integer);
    case Kind::kFloat:
      return float_repr(v.real);
    case Kind::kText:
      cx.reserve_text(4 * text_of(v).size());
      return text_repr(text_of(v));
    case Kind::kList:
      return list_of(cx, "[", items_of(v), "]", one);
    case Kind::kTuple:
      return list_of(cx, "(", items_of(v), items_of(v).size() == 1 ? ",)" : ")", one);
    case Kind::kRange:
      if (v.as<Sequence>().name.empty()) throw Failure("a part of a range cannot be printed");
      return v.as<Sequence>().name;
    case Kind::kView:
      return v.as<Sequence>().name + list_of(cx, "([", items_of(v), "])", one);
    case Kind::kDict:
    case Kind::kNamespace: {
      const std::string members = list_of(cx, "{", v.as<Dict>().members, "}", [&](const auto& member) {
        return one(member.first) + ": " + one(member.second);
      });
      return v.is(Kind::kDict) ? members : "<Namespace " + members + ">";
    }
    default:
      throw Failure(fmt::format("a {} cannot be printed", type_name(v)));
  }
}

int64_t length(Context& cx, const Value& v) {
  if (v.is(Kind::kUndefined)) return 0;
  if (is_text(v) || v.is(Kind::kMarkup)) {
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
    auto& sequence = v.as<Sequence>();
    items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.taken), sequence.items.end());
    sequence.taken = sequence.items.size();
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
  contain(value, dict.depth, dict.plain);
  if (Value* old = find(cx, dict, key)) {
    *old = value;
    return;
  }
  cx.charge(2 * kItemBytes);
  dict.members.emplace_back(key, value);
}

void fail_undefined(const Value& v) { throw Failure(v.object ? text_of(v) : "a value is undefined"); }

}  // namespace lariat::jinja
