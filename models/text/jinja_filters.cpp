// Filters and tests.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "models/text/jinja_eval.h"
#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

constexpr int64_t kMaxIndent = 256;

Value json_filter(Context& cx, const Arguments& args) {
  if (args.boolean(1, false)) throw Failure("tojson with ensure_ascii is not supported");
  const bool lines = args[2] && !args[2]->is(Kind::kNone);
  const int64_t indent = lines ? args.integer(2, 0) : -1;
  if (lines && (indent < 0 || indent > kMaxIndent))
    throw Failure(fmt::format("tojson with an indent that is not 0 to {}", kMaxIndent));
  return make_text(cx, to_json(cx, *args[0], indent));
}

Value default_filter(Context& cx, const Arguments& args) {
  if (!args[0]->is(Kind::kUndefined) && !(args.boolean(2, false) && !truth(*args[0]))) return *args[0];
  return args[1] ? *args[1] : make_text(cx, "");
}

template <Case how>
Value case_filter(Context& cx, const Arguments& args) {
  return change_case(cx, to_text(cx, *args[0]), how);
}

Value trim_filter(Context& cx, const Arguments& args) {
  return strip_text(cx, to_text(cx, *args[0]), args.text(1), true, true);
}

Value replace_filter(Context& cx, const Arguments& args) {
  return replace(cx, to_text(cx, *args[0]), to_text(cx, *args[1]), to_text(cx, *args[2]));
}

// The first `n` arguments, which were given by place, gone.
Call behind(const Call& call, size_t n) {
  return {{call.args.begin() + static_cast<std::ptrdiff_t>(n), call.args.end()}, call.names};
}

// An attribute or index; as attribute= takes them.
Value part_of(Context& cx, const Value& value, const Value& key, const Value* otherwise = nullptr) {
  if (is_text(key) && text_of(key).find_first_of(".0123456789") != std::string::npos)
    throw Failure("an attribute with dots or digits is not supported");
  Value part = item(cx, value, key);
  return otherwise && !otherwise->is(Kind::kNone) && part.is(Kind::kUndefined) ? *otherwise : part;
}

Value join_filter(Context& cx, const Arguments& args) {
  const std::string between = args[1] ? to_text(cx, *args[1]) : "";
  const Value input = to_sequence(cx, *args[0]);
  std::string out;
  for (const Value& v : items_of(input)) {
    const bool by_attribute = args[2] && !args[2]->is(Kind::kNone);
    const std::string text = to_text(cx, by_attribute ? part_of(cx, v, *args[2]) : v);
    cx.reserve_text(out.size() + text.size() + between.size(), text.size() + between.size());
    if (&v != &items_of(input).front()) out += between;
    out += text;
  }
  return make_text(cx, std::move(out));
}

Value map_filter(Context& cx, const Call& call) {
  const Value input = to_sequence(cx, call.args.at(0));
  std::vector<Value> out;
  if (call.by_place() == 1) {
    const Arguments args(call, {"map", {"value", "attribute", "default"}, 2});
    for (const Value& v : items_of(input)) out.push_back(part_of(cx, v, *args[1], args[2]));
  } else {
    if (!is_text(call.args[1])) throw Failure("map needs the name of a filter");
    Call inner = behind(call, 1);
    for (const Value& v : items_of(input)) {
      inner.args[0] = v;
      out.push_back(apply_filter(cx, text_of(call.args[1]), inner));
    }
  }
  return make_sequence(cx, Kind::kIterator, std::move(out));
}

template <bool keep, bool by_attribute>
Value pick(Context& cx, const Call& call) {
  const size_t first = by_attribute ? 2 : 1;
  if (by_attribute && call.by_place() < 2) throw Failure("selectattr and rejectattr need an attribute");
  const bool tests = call.by_place() > first;
  if (tests && !is_text(call.args[first])) throw Failure("select and reject need the name of a test");
  Call inner = tests ? behind(call, first) : Call{};
  std::vector<Value> out;
  const Value input = to_sequence(cx, call.args[0]);
  for (const Value& v : items_of(input)) {
    const Value seen = by_attribute ? part_of(cx, v, call.args[1]) : v;
    if (tests) inner.args[0] = seen;
    if ((tests ? apply_test(cx, text_of(call.args[first]), inner) : truth(seen)) == keep) out.push_back(v);
  }
  return make_sequence(cx, Kind::kIterator, std::move(out));
}

// Values are sorted by themselves, and texts in lower case.
Value sort_key(Context& cx, const Value& v) {
  return is_text(v) ? change_case(cx, text_of(v), Case::kLower) : v;
}

Value sort_filter(Context& cx, const Arguments& args) {
  const Value input = to_sequence(cx, *args[0]);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : items_of(input)) keyed.emplace_back(sort_key(cx, v), v);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    cx.step();
    return compare(cx, "<", a.first, b.first);
  });
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return make_sequence(cx, Kind::kList, std::move(out));
}

Value unique_filter(Context& cx, const Arguments& args) {
  const Value input = to_sequence(cx, *args[0]);
  std::vector<Value> out, keys;
  for (const Value& v : items_of(input)) {
    Value key = sort_key(cx, v);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(cx, known, key); }))
      continue;
    keys.push_back(std::move(key));
    out.push_back(v);
  }
  return make_sequence(cx, Kind::kIterator, std::move(out));
}

template <bool last>
Value end_filter(Context& cx, const Arguments& args) {
  if (last && args[0]->is(Kind::kIterator)) throw Failure("last of a generator; make it a list first");
  const Value all = to_sequence(cx, *args[0]);
  if (items_of(all).empty()) return undefined("no first or last item, as the sequence is empty");
  return last ? items_of(all).back() : items_of(all).front();
}

Value reverse_filter(Context& cx, const Arguments& args) {
  if (is_text(*args[0])) return slice(cx, *args[0], none(), none(), integer(-1));
  const Value all = to_sequence(cx, *args[0]);
  std::vector<Value> items(items_of(all).rbegin(), items_of(all).rend());
  return make_sequence(cx, Kind::kIterator, std::move(items));
}

Value items_filter(Context& cx, const Arguments& args) {
  if (args[0]->is(Kind::kUndefined)) return make_sequence(cx, Kind::kIterator, {});
  if (!args[0]->is(Kind::kDict))
    throw Failure(fmt::format("items of a '{}'; it needs a dict", type_name(*args[0])));
  Value items = call_method(cx, *args[0], "items", {});
  items.kind = Kind::kIterator;
  return items;
}

Value list_filter(Context& cx, const Arguments& args) {
  return make_sequence(cx, Kind::kList, items_of(to_sequence(cx, *args[0])));
}

Value length_filter(Context& cx, const Arguments& args) { return integer(length(cx, *args[0])); }
Value string_filter(Context& cx, const Arguments& args) { return make_text(cx, to_text(cx, *args[0])); }

using Filter = Value (*)(Context&, const Arguments&);
constexpr std::pair<Signature, Filter> kFilters[] = {
    {{"capitalize", {"s"}, 1}, case_filter<Case::kCapitalize>},
    {{"count", {"value"}, 1}, length_filter},
    {{"d", {"value", "default_value", "boolean"}, 1}, default_filter},
    {{"default", {"value", "default_value", "boolean"}, 1}, default_filter},
    {{"first", {"seq"}, 1}, end_filter<false>},
    {{"items", {"value"}, 1}, items_filter},
    {{"join", {"value", "d", "attribute"}, 1}, join_filter},
    {{"last", {"seq"}, 1}, end_filter<true>},
    {{"length", {"value"}, 1}, length_filter},
    {{"list", {"value"}, 1}, list_filter},
    {{"lower", {"s"}, 1}, case_filter<Case::kLower>},
    {{"replace", {"s", "old", "new"}, 3}, replace_filter},
    {{"reverse", {"value"}, 1}, reverse_filter},
    {{"sort", {"value"}, 1}, sort_filter},
    {{"string", {"value"}, 1}, string_filter},
    {{"title", {"s"}, 1}, case_filter<Case::kTitle>},
    {{"tojson", {"value", "ensure_ascii", "indent"}, 1}, json_filter},
    {{"trim", {"value", "chars"}, 1}, trim_filter},
    {{"unique", {"value"}, 1}, unique_filter},
    {{"upper", {"s"}, 1}, case_filter<Case::kUpper>},
};

// Filters whose arguments are those of another filter, or of a test.
using CallFilter = Value (*)(Context&, const Call&);
constexpr std::pair<std::string_view, CallFilter> kCallFilters[] = {
    {"map", map_filter},           {"reject", pick<false, false>},   {"rejectattr", pick<false, true>},
    {"select", pick<true, false>}, {"selectattr", pick<true, true>},
};

using Test = bool (*)(const Value&);

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
// A comparison by its sign or name.
constexpr std::pair<std::string_view, std::string_view> kComparisons[] = {
    {"eq", "=="}, {"equalto", "=="}, {"ne", "!="}, {"lt", "<"},  {"le", "<="}, {"gt", ">"},  {"ge", ">="},
    {"==", "=="}, {"!=", "!="},      {"<", "<"},   {"<=", "<="}, {">", ">"},   {">=", ">="}, {"in", "in"}};

constexpr std::pair<std::string_view, Test> kTests[] = {
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
    // Jinja's: what has a length and can be indexed. A dict is one, and so is what is undefined.
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

Value apply_filter(Context& cx, const std::string& name, const Call& call) {
  if (const auto* filter = in_table(kFilters, name)) return filter->second(cx, {call, filter->first});
  if (const auto* filter = in_table(kCallFilters, name)) return filter->second(cx, call);
  throw Failure(
      fmt::format("unknown filter '{:.40}'; lariat knows trim, tojson, join, map, select, default, items "
                  "and other filters of Jinja",
                  name));
}

bool apply_test(Context& cx, const std::string& name, const Call& call) {
  const auto* test = in_table(kTests, name);
  const auto* symbol = in_table(kComparisons, name);
  if (!test && !symbol) {
    throw Failure(
        fmt::format("unknown test '{:.40}'; lariat knows defined, none, string, mapping, sequence, number, "
                    "eq, in and other tests of Jinja",
                    name));
  }
  if (!call.names.empty() || call.args.size() != (test ? 1 : 2))
    throw Failure(fmt::format("the test '{}' takes {}", name, test ? "no argument" : "one argument"));
  return test ? test->second(call.args[0]) : compare(cx, symbol->second, call.args[0], call.args[1]);
}

}  // namespace lariat::jinja
