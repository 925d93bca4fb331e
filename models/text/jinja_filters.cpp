#include <fmt/format.h>

#include <algorithm>

#include "models/text/jinja_eval.h"

namespace lariat::jinja {
namespace {

constexpr int64_t kMaxIndent = 256;

bool given(const Value* argument) { return argument && !argument->is(Kind::kNone); }

Value json_filter(const Arguments& args) {
  if (args.boolean(0, false)) throw Failure("tojson with ensure_ascii is not supported");
  const int64_t indent = given(args[1]) ? args.integer(1, 0) : -1;
  if (given(args[1]) && (indent < 0 || indent > kMaxIndent))
    throw Failure(fmt::format("tojson with an indent that is not 0 to {}", kMaxIndent));
  return make_text(args.cx, to_json(args.cx, args.self, indent));
}

Value default_filter(const Arguments& args) {
  if (!args.self.is(Kind::kUndefined) && !(args.boolean(1, false) && !truth(args.self))) return args.self;
  return args[0] ? *args[0] : make_text(args.cx, "");
}

Value replace_filter(const Arguments& args) {
  return replace(args.cx, to_text(args.cx, args.self), to_text(args.cx, *args[0]),
                 to_text(args.cx, *args[1]));
}

// An attribute or index, as in attribute=.
Value part_of(Context& cx, const Value& value, const Value& key, const Value* otherwise = nullptr) {
  if (is_text(key) && text_of(key).find_first_of(".0123456789") != std::string::npos)
    throw Failure("an attribute with dots or digits is not supported");
  Value part = item(cx, value, key);
  return given(otherwise) && part.is(Kind::kUndefined) ? *otherwise : part;
}

Value join_filter(const Arguments& args) {
  Context& cx = args.cx;
  const std::string between = args[0] ? to_text(cx, *args[0]) : "";
  const Value input = to_sequence(cx, args.self);
  std::string out;
  for (const Value& v : items_of(input)) {
    const std::string text = to_text(cx, given(args[1]) ? part_of(cx, v, *args[1]) : v);
    cx.reserve_text(out.size() + text.size() + between.size(), text.size() + between.size());
    if (&v != &items_of(input).front()) out += between;
    out += text;
  }
  return make_text(cx, std::move(out));
}

Value map_attribute(const Arguments& args) {
  std::vector<Value> out;
  const Value input = to_sequence(args.cx, args.self);
  for (const Value& v : items_of(input)) out.push_back(part_of(args.cx, v, *args[0], args[1]));
  return make_sequence(args.cx, Kind::kIterator, std::move(out));
}

// Name at argument `at`, and the arguments after it.
std::pair<std::string, Call> named_call(const Call& call, size_t at, const char* what) {
  if (!is_text(call.args[at])) throw Failure(what);
  return {text_of(call.args[at]),
          {{call.args.begin() + static_cast<std::ptrdiff_t>(at) + 1, call.args.end()}, call.names}};
}

Value map_filter(const Arguments& args) {
  if (args.call.by_place() == 0)
    return Builtin{"map", {"attribute", "default"}, 1, map_attribute}(args.cx, args.self, args.call);
  const Value input = to_sequence(args.cx, args.self);
  const auto [name, inner] = named_call(args.call, 0, "map needs the name of a filter");
  std::vector<Value> out;
  for (const Value& v : items_of(input)) out.push_back(apply_filter(args.cx, name, v, inner));
  return make_sequence(args.cx, Kind::kIterator, std::move(out));
}

template <bool keep, bool by_attribute>
Value pick(const Arguments& args) {
  Context& cx = args.cx;
  const Call& call = args.call;
  const size_t first = by_attribute ? 1 : 0;
  if (call.by_place() < first) throw Failure("selectattr and rejectattr need an attribute");
  std::pair<std::string, Call> test;
  const bool tests = call.by_place() > first;
  if (tests) test = named_call(call, first, "select and reject need the name of a test");
  std::vector<Value> out;
  const Value input = to_sequence(cx, args.self);
  for (const Value& v : items_of(input)) {
    const Value seen = by_attribute ? part_of(cx, v, call.args[0]) : v;
    if (truth(tests ? apply_test(cx, test.first, seen, test.second) : seen) == keep) out.push_back(v);
  }
  return make_sequence(cx, Kind::kIterator, std::move(out));
}

// Strings sort in lower case.
Value sort_key(Context& cx, const Value& v) { return is_text(v) ? call_method(cx, v, "lower", {}) : v; }

Value sort_filter(const Arguments& args) {
  const Value input = to_sequence(args.cx, args.self);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : items_of(input)) keyed.emplace_back(sort_key(args.cx, v), v);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    args.cx.step();
    return compare(args.cx, "<", a.first, b.first);
  });
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return make_sequence(args.cx, Kind::kList, std::move(out));
}

Value unique_filter(const Arguments& args) {
  const Value input = to_sequence(args.cx, args.self);
  std::vector<Value> out, keys;
  for (const Value& v : items_of(input)) {
    Value key = sort_key(args.cx, v);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(args.cx, known, key); }))
      continue;
    keys.push_back(std::move(key));
    out.push_back(v);
  }
  return make_sequence(args.cx, Kind::kIterator, std::move(out));
}

template <bool last>
Value end_filter(const Arguments& args) {
  if (last && args.self.is(Kind::kIterator)) throw Failure("last of a generator; make it a list first");
  const Value all = to_sequence(args.cx, args.self);
  if (items_of(all).empty()) return undefined("no first or last item, as the sequence is empty");
  return last ? items_of(all).back() : items_of(all).front();
}

Value reverse_filter(const Arguments& args) {
  if (is_text(args.self)) return slice(args.cx, args.self, none(), none(), integer(-1));
  const Value all = to_sequence(args.cx, args.self);
  return make_sequence(args.cx, Kind::kIterator, {items_of(all).rbegin(), items_of(all).rend()});
}

Value items_filter(const Arguments& args) {
  if (args.self.is(Kind::kUndefined)) return make_sequence(args.cx, Kind::kIterator, {});
  if (!args.self.is(Kind::kDict))
    throw Failure(fmt::format("items of a '{}'; it needs a dict", type_name(args.self)));
  Value items = call_method(args.cx, args.self, "items", {});
  items.kind = Kind::kIterator;
  return items;
}

Value list_filter(const Arguments& args) {
  return make_sequence(args.cx, Kind::kList, items_of(to_sequence(args.cx, args.self)));
}

Value length_filter(const Arguments& args) { return integer(length(args.cx, args.self)); }
Value string_filter(const Arguments& args) { return make_text(args.cx, to_text(args.cx, args.self)); }

// Errors use the filter's name.
Value text_method(const Arguments& args) {
  const Value text = make_text(args.cx, to_text(args.cx, args.self));
  Builtin method = *known_method(text, args.name == "trim" ? "strip" : args.name);
  method.name = args.name;
  return method(args.cx, text, args.call);
}

constexpr Builtin kFilters[] = {
    {"capitalize", {Builtin::kAny}, 0, text_method},
    {"count", {}, 0, length_filter},
    {"d", {"default_value", "boolean"}, 0, default_filter},
    {"default", {"default_value", "boolean"}, 0, default_filter},
    {"first", {}, 0, end_filter<false>},
    {"items", {}, 0, items_filter},
    {"join", {"d", "attribute"}, 0, join_filter},
    {"last", {}, 0, end_filter<true>},
    {"length", {}, 0, length_filter},
    {"list", {}, 0, list_filter},
    {"lower", {Builtin::kAny}, 0, text_method},
    {"map", {Builtin::kAny}, 0, map_filter},
    {"reject", {Builtin::kAny}, 0, pick<false, false>},
    {"rejectattr", {Builtin::kAny}, 0, pick<false, true>},
    {"replace", {"old", "new"}, 2, replace_filter},
    {"reverse", {}, 0, reverse_filter},
    {"select", {Builtin::kAny}, 0, pick<true, false>},
    {"selectattr", {Builtin::kAny}, 0, pick<true, true>},
    {"sort", {}, 0, sort_filter},
    {"string", {}, 0, string_filter},
    {"title", {Builtin::kAny}, 0, text_method},
    {"tojson", {"ensure_ascii", "indent"}, 0, json_filter},
    {"trim", {Builtin::kAny}, 0, text_method},
    {"unique", {}, 0, unique_filter},
    {"upper", {Builtin::kAny}, 0, text_method},
};

int64_t need_integer(const Value& v) {
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!is_integral(v)) throw Failure(fmt::format("an integer is needed, not a '{}'", type_name(v)));
  return integral(v);
}

template <Kind kind>
bool is_kind(const Value& v) {
  return v.kind == kind;
}
template <bool truth>
bool is_bool(const Value& v) {
  return v.is(Kind::kBool) && v.boolean == truth;
}
struct Comparison {
  std::string_view name, symbol;
};
constexpr Comparison kComparisons[] = {
    {"eq", "=="}, {"equalto", "=="}, {"ne", "!="}, {"lt", "<"},  {"le", "<="}, {"gt", ">"},  {"ge", ">="},
    {"==", "=="}, {"!=", "!="},      {"<", "<"},   {"<=", "<="}, {">", ">"},   {">=", ">="}, {"in", "in"}};

struct Test {
  std::string_view name;
  bool (*holds)(const Value&);
};
constexpr Test kTests[] = {
    {"defined", [](const Value& v) { return !v.is(Kind::kUndefined); }},
    {"undefined", is_kind<Kind::kUndefined>},
    {"none", is_kind<Kind::kNone>},
    {"boolean", is_kind<Kind::kBool>},
    {"true", is_bool<true>},
    {"false", is_bool<false>},
    {"integer", is_kind<Kind::kInteger>},
    {"float", is_kind<Kind::kFloat>},
    {"number", [](const Value& v) { return is_number(v); }},
    {"string", is_kind<Kind::kText>},
    {"mapping", is_kind<Kind::kDict>},
    // Jinja's definition: has a length and an index. Dicts and undefined values qualify.
    {"sequence",
     [](const Value& v) {
       if (v.is(Kind::kView)) throw Failure("'is sequence' of a range or view is not supported");
       return is_text(v) || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kDict) ||
              v.is(Kind::kUndefined);
     }},
    {"iterable",
     [](const Value& v) {
       return is_text(v) || is_sequence(v) || v.is(Kind::kDict) || v.is(Kind::kUndefined) ||
              v.is(Kind::kLoop);
     }},
    {"odd", [](const Value& v) { return need_integer(v) % 2 != 0; }},
    {"even", [](const Value& v) { return need_integer(v) % 2 == 0; }},
};

}  // namespace

Value apply_filter(Context& cx, const std::string& name, const Value& input, const Call& call) {
  if (const Builtin* filter = in_table<Builtin>(kFilters, name)) return (*filter)(cx, input, call);
  throw Failure(
      fmt::format("unknown filter '{:.40}'; lariat knows trim, tojson, join, map, select, default, items "
                  "and other filters of Jinja",
                  name));
}

Value apply_test(Context& cx, const std::string& name, const Value& input, const Call& call) {
  const Test* test = in_table<Test>(kTests, name);
  const Comparison* comparison = in_table<Comparison>(kComparisons, name);
  if (!test && !comparison) {
    throw Failure(
        fmt::format("unknown test '{:.40}'; lariat knows defined, none, string, mapping, sequence, number, "
                    "eq, in and other tests of Jinja",
                    name));
  }
  if (!call.names.empty() || call.args.size() != (test ? 0 : 1))
    throw Failure(fmt::format("the test '{}' takes {}", name, test ? "no argument" : "one argument"));
  return boolean(test ? test->holds(input) : compare(cx, comparison->symbol, input, call.args[0]));
}

}  // namespace lariat::jinja
