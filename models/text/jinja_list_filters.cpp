// Filters of lists and other sequences.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"

namespace lariat::jinja {
namespace {

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

Value join_filter(Context& cx, const Call& call) {
  const Arguments args(call, "join", {"value", "d", "attribute"}, 1);
  const std::string between = args[1] ? to_text(cx, *args[1]) : "";
  const Value input = to_sequence(cx, *args[0]);
  std::string out;
  for (const Value& v : items_of(input)) {
    const bool by_attribute = args[2] && !args[2]->is(Kind::kNone);
    const std::string text = to_text(cx, by_attribute ? path_of(cx, v, *args[2]) : v);
    cx.reserve_text(out.size() + text.size() + between.size(), text.size() + between.size());
    if (&v != &items_of(input).front()) out += between;
    out += text;
  }
  return make_text(cx, std::move(out));
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
  out.reserve(places.size());
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

}  // namespace

Filter find_list_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"count", [](Context& cx, const Call& call) { return integer(length(cx, call.args.at(0))); }},
      {"dictsort", dictsort_filter},
      {"first", first_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"length", [](Context& cx, const Call& call) { return integer(length(cx, call.args.at(0))); }},
      {"list", list_filter},
      {"map", map_filter},
      {"max", extreme<1>},
      {"min", extreme<-1>},
      {"reject", pick<false, false>},
      {"rejectattr", pick<false, true>},
      {"reverse", reverse_filter},
      {"select", pick<true, false>},
      {"selectattr", pick<true, true>},
      {"sort", sort_filter},
      {"sum", sum_filter},
      {"unique", unique_filter},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace lariat::jinja
