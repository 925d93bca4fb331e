#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"

namespace lariat::jinja {
namespace {

using Filter = Value (*)(Context&, const Call&);
constexpr int64_t kMaxIndent = 256;

// The first `n` arguments, which were given by place, gone.
Call behind(const Call& call, size_t n) {
  return {{call.args.begin() + static_cast<std::ptrdiff_t>(n), call.args.end()}, call.names};
}

size_t by_place(const Call& call) { return call.args.size() - call.names.size(); }

// "a.b.0": attributes of attributes, numbers as indices.
Value path_of(Context& cx, Value value, const Value& path, const Value* otherwise = nullptr) {
  std::vector<Value> parts;
  if (is_text(path)) {
    const std::string dot = ".";
    for (const std::string_view part : split(text_of(path), &dot, -1)) {
      int64_t index = 0;
      const bool number =
          is_digit(part) && std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc();
      parts.push_back(number ? integer(index) : make_text(cx, std::string(part)));
    }
  } else {
    parts.push_back(path);
  }
  for (const Value& part : parts) {
    value = item(cx, value, part);
    if (otherwise && !otherwise->is(Kind::kNone) && value.is(Kind::kUndefined)) value = *otherwise;
  }
  return value;
}

Value map_filter(Context& cx, const Call& call) {
  const Value input = to_sequence(cx, call.args.at(0));
  std::vector<Value> out;
  if (by_place(call) == 1) {
    const Arguments args(call, "map", {"value", "attribute", "default"}, 2);
    for (const Value& v : items_of(input)) out.push_back(path_of(cx, v, *args[1], args[2]));
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
  if (by_attribute && by_place(call) < 2) throw Failure("selectattr and rejectattr need an attribute");
  const bool tests = by_place(call) > first;
  if (tests && !is_text(call.args[first])) throw Failure("select and reject need the name of a test");
  Call inner = tests ? behind(call, first) : Call{};
  std::vector<Value> out;
  const Value input = to_sequence(cx, call.args[0]);
  for (const Value& v : items_of(input)) {
    const Value seen = by_attribute ? path_of(cx, v, call.args[1]) : v;
    if (tests) inner.args[0] = seen;
    if ((tests ? apply_test(cx, text_of(call.args[first]), inner) : truth(seen)) == keep) out.push_back(v);
  }
  return make_sequence(cx, Kind::kIterator, std::move(out));
}

Value join_filter(Context& cx, const Call& call) {
  const Arguments args(call, "join", {"value", "d", "attribute"}, 1);
  const std::string between = args[1] ? to_text(cx, *args[1]) : "";
  const Value input = to_sequence(cx, *args[0]);
  std::string out;
  for (const Value& v : items_of(input)) {
    if (&v != &items_of(input).front()) out += between;
    const bool by_attribute = args[2] && !args[2]->is(Kind::kNone);
    const std::string text = to_text(cx, by_attribute ? path_of(cx, v, *args[2]) : v);
    cx.reserve_text(out.size() + text.size(), text.size() + between.size());
    out += text;
  }
  return make_text(cx, std::move(out));
}

Value json_filter(Context& cx, const Call& call) {
  const Arguments args(call, "tojson", {"value", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style{.ascii = args.boolean(1, false), .sort_keys = args.boolean(4, false), .indent = {}};
  if (args[2] && !args[2]->is(Kind::kNone)) {
    if (is_text(*args[2])) {
      style.indent = text_of(*args[2]);
    } else {
      style.indent =
          std::string(static_cast<size_t>(std::clamp<int64_t>(args.integer(2, 0), 0, kMaxIndent + 1)), ' ');
    }
    if (style.indent->size() > kMaxIndent) throw Failure("tojson with an indent of more than 256 bytes");
    style.item_separator = ",";
  }
  if (args[3] && !args[3]->is(Kind::kNone)) {
    const Value both = to_sequence(cx, *args[3]);
    if (items_of(both).size() != 2 || !is_text(items_of(both)[0]) || !is_text(items_of(both)[1]))
      throw Failure("tojson: separators are two texts");
    style.item_separator = text_of(items_of(both)[0]);
    style.key_separator = text_of(items_of(both)[1]);
    if (style.item_separator.size() + style.key_separator.size() > kMaxIndent)
      throw Failure("tojson with separators of more than 256 bytes");
  }
  return make_text(cx, to_json(cx, *args[0], style));
}

// Python's float() of a text; nothing where it refuses.
std::optional<double> parse_float(std::string_view text) {
  std::string digits(strip(text, nullptr, true, true));
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool hexadecimal = digits.find_first_of("xX") != digits.npos;
  const bool whole = result.ptr == digits.data() + digits.size() && digits.find('(') == digits.npos;
  if (result.ec != std::errc() || !whole || digits.empty() || hexadecimal) return std::nullopt;
  return value;
}

std::optional<int64_t> truncate(double d) {
  if (!(std::fabs(d) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(d);
}

Value int_filter(Context& cx, const Call& call) {
  const Arguments args(call, "int", {"value", "default", "base"}, 1);
  if (args.integer(2, 10) != 10) throw Failure("int of another base than 10 is not supported");
  const Value& v = *args[0];
  const Value otherwise = args[1] ? *args[1] : integer(0);
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (is_integral(v)) return integer(integral(v));
  std::optional<double> number;
  if (v.is(Kind::kFloat)) number = v.real;
  if (is_text(v)) {
    cx.charge(text_of(v).size());
    std::string digits(strip(text_of(v), nullptr, true, true));
    if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
    int64_t whole = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    if (result.ptr == digits.data() + digits.size() && result.ec == std::errc()) return integer(whole);
    if (result.ec == std::errc::result_out_of_range)
      throw Failure("int: a number that does not fit into 64 bits");
    number = parse_float(text_of(v));
  }
  if (!number) return otherwise;
  const auto whole = truncate(*number);
  if (!whole && std::isfinite(*number)) throw Failure("int: a number that does not fit into 64 bits");
  return whole ? integer(*whole) : otherwise;
}

Value float_filter(Context&, const Call& call) {
  const Arguments args(call, "float", {"value", "default"}, 1);
  const Value& v = *args[0];
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (is_number(v)) return real(to_double(v));
  const auto number = is_text(v) ? parse_float(text_of(v)) : std::nullopt;
  return number ? real(*number) : args[1] ? *args[1] : real(0);
}

Value round_filter(Context&, const Call& call) {
  const Arguments args(call, "round", {"value", "precision", "method"}, 1);
  if (args[0]->is(Kind::kUndefined)) fail_undefined(*args[0]);
  if (!is_number(*args[0])) throw Failure(fmt::format("round of a '{}'", type_name(*args[0])));
  const int64_t precision = args.integer(1, 0);
  const std::string* method = args.text(2);
  if (precision < 0 || precision > 15 || (method && *method != "common"))
    throw Failure("round knows 0 to 15 digits and the method 'common'");
  if (is_integral(*args[0])) return integer(integral(*args[0]));
  if (!std::isfinite(args[0]->real)) return *args[0];
  const std::string digits = fmt::format("{:.{}f}", args[0]->real, precision);
  double rounded = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return real(rounded);
}

Value abs_filter(Context&, const Call& call) {
  const Arguments args(call, "abs", {"value"}, 1);
  const Value& v = *args[0];
  if (v.is(Kind::kFloat)) return real(std::fabs(v.real));
  return is_integral(v) && integral(v) >= 0 ? integer(integral(v)) : negative(v);
}

Value default_filter(Context& cx, const Call& call) {
  const Arguments args(call, "default", {"value", "default_value", "boolean"}, 1);
  if (!args[0]->is(Kind::kUndefined) && !(args.boolean(2, false) && !truth(*args[0]))) return *args[0];
  return args[1] ? *args[1] : make_text(cx, "");
}

Value indent_filter(Context& cx, const Call& call) {
  const Arguments args(call, "indent", {"s", "width", "first", "blank"}, 1);
  const std::string* given = args[1] && is_text(*args[1]) ? args.text(1) : nullptr;
  const int64_t width = given ? 0 : std::clamp<int64_t>(args.integer(1, 4), 0, kMaxIndent + 1);
  const std::string space = given ? *given : std::string(static_cast<size_t>(width), ' ');
  if (space.size() > kMaxIndent) throw Failure("indent by more than 256 bytes");
  if (args[0]->is(Kind::kUndefined)) fail_undefined(*args[0]);
  if (!args.text(0)) throw Failure("indent needs a text");
  const std::string text = *args.text(0) + "\n";
  cx.charge(8 * text.size());
  std::string out = args.boolean(2, false) ? space : "";
  const auto lines = split_lines(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (args.boolean(3, false) || !lines[i].empty())) out += space;
    cx.reserve_text(out.size(), lines[i].size() + space.size());
    out += lines[i];
  }
  return make_text(cx, std::move(out));
}

// What a value is sorted by: a text in lower case, unless its case counts.
Value sort_key(Context& cx, const Value& v, const Value* path, bool case_sensitive) {
  Value key = path && !path->is(Kind::kNone) ? path_of(cx, v, *path) : v;
  if (case_sensitive || !is_text(key)) return key;
  cx.charge(8 * text_of(key).size());
  return make_text(cx, lower(text_of(key)));
}

std::vector<Value> sorted(Context& cx, const std::vector<Value>& items, std::vector<Value> keys,
                          bool reverse) {
  std::vector<size_t> places(items.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    return reverse ? order(cx, keys[b], keys[a]) < 0 : order(cx, keys[a], keys[b]) < 0;
  });
  std::vector<Value> out;
  for (const size_t i : places) out.push_back(items[i]);
  return out;
}

Value sort_filter(Context& cx, const Call& call) {
  const Arguments args(call, "sort", {"value", "reverse", "case_sensitive", "attribute"}, 1);
  const Value input = to_sequence(cx, *args[0]);
  std::vector<Value> keys;
  for (const Value& v : items_of(input)) keys.push_back(sort_key(cx, v, args[3], args.boolean(2, false)));
  return make_sequence(cx, Kind::kList, sorted(cx, items_of(input), std::move(keys), args.boolean(1, false)));
}

Value dictsort_filter(Context& cx, const Call& call) {
  const Arguments args(call, "dictsort", {"value", "case_sensitive", "by", "reverse"}, 1);
  if (!args[0]->is(Kind::kDict)) throw Failure(fmt::format("dictsort of a '{}'", type_name(*args[0])));
  const std::string* by = args.text(2);
  if (by && *by != "key" && *by != "value") throw Failure("dictsort sorts by 'key' or 'value'");
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : args[0]->as<Dict>().members) {
    pairs.push_back(make_sequence(cx, Kind::kTuple, {key, value}));
    keys.push_back(sort_key(cx, by && *by == "value" ? value : key, nullptr, args.boolean(1, false)));
  }
  return make_sequence(cx, Kind::kList, sorted(cx, pairs, std::move(keys), args.boolean(3, false)));
}

Value unique_filter(Context& cx, const Call& call) {
  const Arguments args(call, "unique", {"value", "case_sensitive", "attribute"}, 1);
  const Value input = to_sequence(cx, *args[0]);
  std::vector<Value> out, keys;
  for (const Value& v : items_of(input)) {
    Value key = sort_key(cx, v, args[2], args.boolean(1, false));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(cx, known, key); }))
      continue;
    keys.push_back(std::move(key));
    out.push_back(v);
  }
  return make_sequence(cx, Kind::kIterator, std::move(out));
}

template <int sign>  // -1: the least, 1: the greatest; the first of equal ones
Value extreme(Context& cx, const Call& call) {
  const Arguments args(call, sign < 0 ? "min" : "max", {"value", "case_sensitive", "attribute"}, 1);
  const Value input = to_sequence(cx, *args[0]);
  const Value* best = nullptr;
  Value best_key;
  for (const Value& v : items_of(input)) {
    Value key = sort_key(cx, v, args[2], args.boolean(1, false));
    if (best && order(cx, key, best_key) * sign <= 0) continue;
    best = &v;
    best_key = std::move(key);
  }
  return best ? *best : undefined("no least or greatest item, as the sequence is empty");
}

Value sum_filter(Context& cx, const Call& call) {
  const Arguments args(call, "sum", {"iterable", "attribute", "start"}, 1);
  const Value input = to_sequence(cx, *args[0]);
  Value total = args[2] ? *args[2] : integer(0);
  for (const Value& v : items_of(input))
    total = arithmetic(cx, "+", std::move(total),
                       args[1] && !args[1]->is(Kind::kNone) ? path_of(cx, v, *args[1]) : v);
  return total;
}

Value first_filter(Context& cx, const Call& call) {
  const Arguments args(call, "first", {"seq"}, 1);
  if (args[0]->is(Kind::kIterator)) {
    auto& sequence = args[0]->as<Sequence>();
    if (sequence.taken < sequence.items.size()) return sequence.items[sequence.taken++];
  } else if (const Value all = to_sequence(cx, *args[0]); !items_of(all).empty()) {
    return items_of(all).front();
  }
  return undefined("no first item, as the sequence is empty");
}

Value last_filter(Context& cx, const Call& call) {
  const Arguments args(call, "last", {"seq"}, 1);
  if (args[0]->is(Kind::kIterator)) throw Failure("last of a generator; make it a list first");
  const Value all = to_sequence(cx, *args[0]);
  return items_of(all).empty() ? undefined("no last item, as the sequence is empty") : items_of(all).back();
}

Value reverse_filter(Context& cx, const Call& call) {
  const Arguments args(call, "reverse", {"value"}, 1);
  if (is_text(*args[0])) return slice(cx, *args[0], none(), none(), integer(-1));
  const Value all = to_sequence(cx, *args[0]);
  std::vector<Value> items(items_of(all).rbegin(), items_of(all).rend());
  return make_sequence(cx, Kind::kIterator, std::move(items));
}

Value items_filter(Context& cx, const Call& call) {
  const Arguments args(call, "items", {"value"}, 1);
  if (args[0]->is(Kind::kUndefined)) return make_sequence(cx, Kind::kIterator, {});
  if (!args[0]->is(Kind::kDict))
    throw Failure(fmt::format("items of a '{}'; it needs a dict", type_name(*args[0])));
  Value items = call_method(cx, *args[0], "items", {});
  items.kind = Kind::kIterator;
  return items;
}

Value list_filter(Context& cx, const Call& call) {
  const Arguments args(call, "list", {"value"}, 1);
  return make_sequence(cx, Kind::kList, items_of(to_sequence(cx, *args[0])));
}

// Filters of a text and nothing else.
template <std::string (*change)(std::string_view)>
Value of_text(Context& cx, const Call& call) {
  const Arguments args(call, "the filter", {"s"}, 1);
  const std::string text = to_text(cx, *args[0]);
  cx.charge(8 * text.size());
  return make_text(cx, change(text));
}

Value trim_filter(Context& cx, const Call& call) {
  const Arguments args(call, "trim", {"value", "chars"}, 1);
  const std::string text = to_text(cx, *args[0]);
  const std::string* set = args.text(1);
  if (set) cx.charge(text.size() * (1 + set->size() / 16));
  return make_text(cx, std::string(strip(text, set, true, true)));
}

Value replace_filter(Context& cx, const Call& call) {
  const Arguments args(call, "replace", {"s", "old", "new", "count"}, 3);
  const int64_t count = args[3] && args[3]->is(Kind::kNone) ? -1 : args.integer(3, -1);
  return make_text(cx,
                   replace(cx, to_text(cx, *args[0]), to_text(cx, *args[1]), to_text(cx, *args[2]), count));
}

Value escape_filter(Context& cx, const Call& call) {
  const Arguments args(call, "escape", {"s"}, 1);
  if (args[0]->is(Kind::kMarkup)) return *args[0];
  const std::string text = to_text(cx, *args[0]);
  cx.charge(5 * text.size());
  return make_markup(cx, escape_html(text));
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", abs_filter},
      {"attr",
       [](Context& cx, const Call& call) {
         const Arguments args(call, "attr", {"obj", "name"}, 2);
         if (!args.text(1)) throw Failure("attr needs a name");
         return args[0]->is(Kind::kDict) ? undefined("a dict has no such attribute")
                                         : attribute(cx, *args[0], *args.text(1));
       }},
      {"capitalize", of_text<capitalize>},
      {"count", [](Context& cx, const Call& call) { return integer(length(cx, call.args.at(0))); }},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"first", first_filter},
      {"float", float_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"length", [](Context& cx, const Call& call) { return integer(length(cx, call.args.at(0))); }},
      {"list", list_filter},
      {"lower", of_text<lower>},
      {"map", map_filter},
      {"max", extreme<1>},
      {"min", extreme<-1>},
      {"reject", pick<false, false>},
      {"rejectattr", pick<false, true>},
      {"replace", replace_filter},
      {"reverse", reverse_filter},
      {"round", round_filter},
      {"safe", [](Context& cx, const Call& call) { return make_markup(cx, to_text(cx, call.args.at(0))); }},
      {"select", pick<true, false>},
      {"selectattr", pick<true, true>},
      {"sort", sort_filter},
      {"string", [](Context& cx, const Call& call) { return make_text(cx, to_text(cx, call.args.at(0))); }},
      {"sum", sum_filter},
      {"title", of_text<filter_title>},
      {"tojson", json_filter},
      {"trim", trim_filter},
      {"unique", unique_filter},
      {"upper", of_text<upper>},
  };
  return kFilters;
}

}  // namespace

Value apply_filter(Context& cx, const std::string& name, const Call& call) {
  const auto found = filters().find(name);
  if (found == filters().end()) {
    throw Failure(
        fmt::format("unknown filter '{:.40}'; lariat knows trim, tojson, join, map, select, default, items "
                    "and other filters of Jinja",
                    name));
  }
  return found->second(cx, call);
}

}  // namespace lariat::jinja
