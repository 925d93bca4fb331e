#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"
#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

constexpr std::string_view kOfText[] = {
    "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
    "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
    "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
    "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
    "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
    "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
    "swapcase",   "title",        "translate",    "upper",   "zfill"};
constexpr std::string_view kOfDict[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                        "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::string_view kOfList[] = {"append", "clear", "copy",   "count",   "extend", "index",
                                        "insert", "pop",   "remove", "reverse", "sort"};
constexpr std::string_view kOfTuple[] = {"count", "index"};
constexpr std::string_view kChanging[] = {"append",  "clear",  "pop",  "popitem", "setdefault", "update",
                                          "reverse", "insert", "sort", "extend",  "remove"};

std::span<const std::string_view> methods_of(const Value& v) {
  if (is_text(v)) return kOfText;
  if (v.is(Kind::kDict)) return kOfDict;
  if (v.is(Kind::kList)) return kOfList;
  if (v.is(Kind::kTuple) || v.is(Kind::kRange)) return kOfTuple;
  return {};
}

Value texts(Context& cx, Kind kind, const std::vector<std::string_view>& parts) {
  cx.charge(parts.size() * sizeof(std::string_view));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(make_text(cx, std::string(part)));
  return make_sequence(cx, kind, std::move(items));
}

Value split_method(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {"sep", "maxsplit"}, 0);
  const std::string* separator = args.text(0);
  if (separator && separator->empty()) throw Failure(name + " at an empty text");
  const int64_t limit = args.integer(1, -1);
  // Each part costs a value, and a search from the right the length of the separator.
  cx.charge(self.size() * (name == "split" || !separator ? 1 : separator->size()));
  if (!separator || separator->size() == 1) {
    const auto most = static_cast<uint64_t>(limit < 0 ? INT64_MAX : limit);
    cx.step(std::min<uint64_t>(self.size() / 16, most));
  }
  return texts(cx, Kind::kList,
               name == "split" ? split(self, separator, limit) : split_right(self, separator, limit));
}

Value strip_method(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {"chars"}, 0);
  const std::string* set = args.text(0);
  if (set) cx.charge(self.size() * (1 + set->size() / 16));
  return make_text(cx, std::string(strip(self, set, name != "rstrip", name != "lstrip")));
}

// The part of the text between two places given in characters, as find and startswith take them.
std::string_view window(Context& cx, const std::string& self, const Arguments& args, size_t* offset) {
  *offset = 0;
  if (!args[1] && !args[2]) return self;
  const int64_t size = length(cx, constant_text(self));
  const auto at = [&](size_t i, int64_t otherwise) {
    const int64_t place = args[i] && args[i]->is(Kind::kNone) ? otherwise : args.integer(i, otherwise);
    return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
  };
  const int64_t start = at(1, 0), stop = std::max(start, at(2, size));
  cx.charge(self.size());
  size_t begin = 0, end = 0;
  for (int64_t i = 0; i < stop; ++i) {
    if (i == start) begin = end;
    end += utf8_step(self, end).length;
  }
  if (start == stop) begin = end;
  *offset = begin;
  return std::string_view(self).substr(begin, end - begin);
}

Value starts_or_ends(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {"prefix", "start", "end"}, 1);
  size_t offset = 0;
  const std::string_view text = window(cx, self, args, &offset);
  const auto fits = [&](const Value& part) {
    if (part.is(Kind::kUndefined)) fail_undefined(part);
    if (!is_text(part)) throw Failure(fmt::format("{} of a '{}'; it needs a text", name, type_name(part)));
    cx.charge(text_of(part).size());
    return name == "startswith" ? text.starts_with(text_of(part)) : text.ends_with(text_of(part));
  };
  if (!args[0]->is(Kind::kTuple)) return boolean(fits(*args[0]));
  return boolean(std::any_of(items_of(*args[0]).begin(), items_of(*args[0]).end(), fits));
}

Value find_method(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {"sub", "start", "end"}, 1);
  const std::string* part = args.text(0);
  if (!part) throw Failure(name + " needs a text");
  size_t offset = 0;
  const std::string_view text = window(cx, self, args, &offset);
  const bool from_right = name[0] == 'r';
  cx.charge(self.size() * (from_right ? 1 + part->size() : 1));
  const size_t at = from_right ? text.rfind(*part) : find_in(text, *part);
  if (at != std::string_view::npos)
    return integer(count_chars(std::string_view(self).substr(0, offset + at)));
  if (name == "find" || name == "rfind") return integer(-1);
  throw Failure(name + ": the text is not there");
}

Value count_method(Context& cx, const std::string& self, const Call& call) {
  const Arguments args(call, "count", {"sub", "start", "end"}, 1);
  const std::string* part = args.text(0);
  if (!part) throw Failure("count needs a text");
  size_t offset = 0;
  const std::string_view text = window(cx, self, args, &offset);
  cx.charge(text.size());
  if (part->empty()) return integer(count_chars(text) + 1);
  int64_t n = 0;
  for (size_t at = 0; (at = find_in(text, *part, at)) != text.npos; at += part->size()) ++n;
  return integer(n);
}

Value partition(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {"sep"}, 1);
  const std::string* separator = args.text(0);
  if (!separator || separator->empty()) throw Failure(name + " needs a text that is not empty");
  const bool from_right = name[0] == 'r';
  cx.charge(self.size() * (from_right ? separator->size() : 1));
  const size_t at = from_right ? self.rfind(*separator) : find_in(self, *separator);
  const std::string_view text = self;
  if (at == self.npos) {
    return from_right ? texts(cx, Kind::kTuple, {"", "", text}) : texts(cx, Kind::kTuple, {text, "", ""});
  }
  return texts(cx, Kind::kTuple, {text.substr(0, at), *separator, text.substr(at + separator->size())});
}

Value pad(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {"width", "fillchar"}, 1);
  const std::string* fill = args.text(1);
  const int64_t missing = args.integer(0, 0) - length(cx, constant_text(self));
  const std::string unit = name == "zfill" ? "0" : fill ? *fill : " ";
  if (count_chars(unit) != 1) throw Failure(name + ": the filling is one character");
  if (missing <= 0) return make_text(cx, self);
  if (missing > INT32_MAX) throw Failure(name + " to a width beyond measure");
  cx.reserve_text(static_cast<uint64_t>(missing) * unit.size());
  std::string padding;
  for (int64_t i = 0; i < missing; ++i) padding += unit;
  if (name == "ljust") return make_text(cx, self + padding);
  const bool sign = name == "zfill" && !self.empty() && (self[0] == '-' || self[0] == '+');
  return make_text(cx, sign ? self[0] + padding + self.substr(1) : padding + self);
}

Value join_method(Context& cx, const std::string& self, const Call& call) {
  const Arguments args(call, "join", {"iterable"}, 1);
  const Value all = to_sequence(cx, *args[0]);
  std::string out;
  for (const Value& item : items_of(all)) {
    if (!is_text(item)) throw Failure(fmt::format("join of a '{}'; it needs texts", type_name(item)));
    if (&item != &items_of(all).front()) out += self;
    cx.reserve_text(out.size() + text_of(item).size(), text_of(item).size() + self.size());
    out += text_of(item);
  }
  return make_text(cx, std::move(out));
}

Value character_test(const std::string& self, const std::string& name) {
  if (name == "isdigit") return boolean(is_digit(self));
  if (name == "isalpha") return boolean(is_alpha(self, false));
  if (name == "isalnum") return boolean(is_alpha(self, true));
  if (name == "isspace") return boolean(is_space(self));
  if (name == "isupper") return boolean(is_upper(self));
  if (name == "islower") return boolean(is_lower(self));
  throw Failure(fmt::format("the method '{}' of a text is not supported", name));
}

Value change_case(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  const Arguments args(call, name, {}, 0);
  cx.charge(8 * self.size());
  if (name == "upper") return make_text(cx, upper(self));
  if (name == "lower") return make_text(cx, lower(self));
  if (name == "title") return make_text(cx, title(self));
  if (name == "capitalize") return make_text(cx, capitalize(self));
  return character_test(self, name);
}

Value text_method(Context& cx, const std::string& self, const std::string& name, const Call& call) {
  if (name == "split" || name == "rsplit") return split_method(cx, self, name, call);
  if (name == "strip" || name == "lstrip" || name == "rstrip") return strip_method(cx, self, name, call);
  if (name == "startswith" || name == "endswith") return starts_or_ends(cx, self, name, call);
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex")
    return find_method(cx, self, name, call);
  if (name == "count") return count_method(cx, self, call);
  if (name == "join") return join_method(cx, self, call);
  if (name == "partition" || name == "rpartition") return partition(cx, self, name, call);
  if (name == "ljust" || name == "rjust" || name == "zfill") return pad(cx, self, name, call);
  if (name == "replace") {
    const Arguments args(call, name, {"old", "new", "count"}, 2);
    if (!args.text(0) || !args.text(1)) throw Failure("replace needs two texts");
    return make_text(cx, replace(cx, self, *args.text(0), *args.text(1), args.integer(2, -1)));
  }
  if (name == "splitlines") {
    const Arguments args(call, name, {"keepends"}, 0);
    cx.charge(8 * self.size());
    return texts(cx, Kind::kList, split_lines(self, args.boolean(0, false)));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Arguments args(call, name, {"part"}, 1);
    const std::string* part = args.text(0);
    const bool prefix = name == "removeprefix";
    if (!part || !(prefix ? self.starts_with(*part) : self.ends_with(*part))) return make_text(cx, self);
    return make_text(cx, prefix ? self.substr(part->size()) : self.substr(0, self.size() - part->size()));
  }
  return change_case(cx, self, name, call);
}

Value dict_method(Context& cx, const Value& self, const std::string& name, const Call& call) {
  const auto& members = self.as<Dict>().members;
  if (name == "get") {
    const Arguments args(call, name, {"key", "default"}, 1);
    const Value* found = find(cx, self.as<Dict>(), *args[0]);
    return found ? *found : args[1] ? *args[1] : none();
  }
  const Arguments args(call, name, {}, 0);
  if (name == "copy") return make_dict(cx, members);
  std::vector<Value> items;
  if (name == "items") {
    for (const auto& [key, value] : members) items.push_back(make_sequence(cx, Kind::kTuple, {key, value}));
  } else if (name == "keys") {
    for (const auto& [key, value] : members) items.push_back(key);
  } else if (name == "values") {
    for (const auto& [key, value] : members) items.push_back(value);
  } else {
    throw Failure(fmt::format("the method '{}' of a dict is not supported", name));
  }
  return make_sequence(cx, Kind::kView, std::move(items), "dict_" + name);
}

Value list_method(Context& cx, const Value& self, const std::string& name, const Call& call) {
  const auto& items = items_of(self);
  if (name == "copy") return make_sequence(cx, self.kind, items);
  if (name != "count" && name != "index")
    throw Failure(fmt::format("the method '{}' of a list is not supported", name));
  const Arguments args(call, name, {"value"}, 1);
  int64_t n = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equal(cx, items[i], *args[0])) continue;
    if (name == "index") return integer(static_cast<int64_t>(i));
    ++n;
  }
  if (name == "index") throw Failure("index: the value is not in the list");
  return integer(n);
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  const auto known = methods_of(self);
  return std::find(known.begin(), known.end(), name) != known.end();
}

bool changes_its_object(const Value& self, std::string_view name) {
  return (self.is(Kind::kList) || self.is(Kind::kDict)) &&
         std::find(std::begin(kChanging), std::end(kChanging), name) != std::end(kChanging);
}

Value call_method(Context& cx, const Value& self, const std::string& name, const Call& call) {
  if (is_text(self)) return text_method(cx, text_of(self), name, call);
  return self.is(Kind::kDict) ? dict_method(cx, self, name, call) : list_method(cx, self, name, call);
}

std::string replace(Context& cx, const std::string& text, const std::string& old, const std::string& with,
                    int64_t limit) {
  std::string out;
  size_t from = 0;
  const auto copy_to = [&](size_t end) {
    cx.reserve_text(out.size() + end - from + with.size(), end - from + with.size());
    out.append(text, from, end - from);
    from = end;
  };
  for (int64_t n = 0; limit < 0 || n < limit; ++n) {
    // An empty text stands before every character and at the end.
    const size_t skipped = old.empty() && n > 0 ? utf8_step(text, from).length : 0;
    const size_t at = find_in(text, old, from + skipped);
    if (at == text.npos) break;
    copy_to(at);
    out += with;
    from += old.size();
    if (old.empty() && from == text.size()) break;
  }
  copy_to(text.size());
  return out;
}

}  // namespace lariat::jinja
