#include "models/text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

// Exact on x86-64 and AArch64, whose long double holds every int64 and every double.
int order_numbers(const Value& a, const Value& b) {
  const auto wide = [](const Value& v) {
    return v.is(Kind::kFloat) ? static_cast<long double>(v.real) : static_cast<long double>(integral(v));
  };
  const long double x = wide(a), y = wide(b);
  return x < y ? -1 : x > y ? 1 : 0;
}

bool equal_dicts(Context& cx, const Dict& a, const Dict& b) {
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const Value* other = find(cx, b, member.first);
    return other && equal(cx, member.second, *other);
  });
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

bool equal(Context& cx, const Value& a, const Value& b) {
  cx.step();
  if (is_number(a) && is_number(b)) {
    const bool unordered = std::isnan(to_double(a)) || std::isnan(to_double(b));
    return !unordered && order_numbers(a, b) == 0;
  }
  const auto textual = [](const Value& v) { return is_text(v) || v.is(Kind::kMarkup); };
  if (textual(a) && textual(b)) {
    if (text_of(a).size() != text_of(b).size()) return false;
    cx.charge(text_of(a).size());
    return text_of(a) == text_of(b);
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kFunction:
      return a.integer == b.integer;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      const auto &x = items_of(a), &y = items_of(b);
      return x.size() == y.size() &&
             std::equal(x.begin(), x.end(), y.begin(),
                        [&](const Value& p, const Value& q) { return equal(cx, p, q); });
    }
    case Kind::kDict:
      return equal_dicts(cx, a.as<Dict>(), b.as<Dict>());
    default:
      return a.object == b.object;
  }
}

int order(Context& cx, const Value& a, const Value& b, std::string_view symbol) {
  cx.step();
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (is_number(a) && is_number(b)) return order_numbers(a, b);
  if (is_text(a) && is_text(b)) {
    cx.charge(std::min(text_of(a).size(), text_of(b).size()));
    const int sign = text_of(a).compare(text_of(b));
    return sign < 0 ? -1 : sign > 0 ? 1 : 0;
  }
  if (a.kind != b.kind || (!a.is(Kind::kList) && !a.is(Kind::kTuple))) {
    throw Failure(
        fmt::format("'{}' has no meaning between '{}' and '{}'", symbol, type_name(a), type_name(b)));
  }
  const auto &x = items_of(a), &y = items_of(b);
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    if (!equal(cx, x[i], y[i])) return order(cx, x[i], y[i], symbol);
  }
  return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
}

bool contains(Context& cx, const Value& container, const Value& item) {
  if (is_text(container)) {
    if (item.is(Kind::kUndefined)) fail_undefined(item);
    if (!is_text(item))
      throw Failure(fmt::format("'in' a text needs a text, not a value of '{}'", type_name(item)));
    cx.charge(text_of(container).size());
    return find_in(text_of(container), text_of(item)) != std::string::npos;
  }
  if (container.is(Kind::kDict)) return find(cx, container.as<Dict>(), item) != nullptr;
  if (container.is(Kind::kUndefined)) return false;
  if (!is_sequence(container))
    throw Failure(fmt::format("'in' needs a list, dict or text, not '{}'", type_name(container)));
  auto& sequence = container.as<Sequence>();
  size_t unused = 0;
  size_t& at = container.is(Kind::kIterator) ? sequence.taken : unused;
  while (at < sequence.items.size()) {
    if (equal(cx, sequence.items[at++], item)) return true;
  }
  return false;
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
