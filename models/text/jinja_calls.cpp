// Argument binding, name lookup, methods of strings and dicts, functions.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <span>

#include "models/text/jinja_eval.h"
#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

// Python's methods, supported or not. Another attribute is undefined; templates test for it.
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

std::span<const std::string_view> methods_of(const Value& v) {
  if (is_text(v)) return kOfText;
  if (v.is(Kind::kDict)) return kOfDict;
  if (v.is(Kind::kList)) return kOfList;
  if (v.is(Kind::kTuple) || v.is(Kind::kView)) return kOfTuple;
  return {};
}

// Splits at whitespace or at a non-empty separator, at most `limit` times unless negative.
std::vector<std::string_view> split(std::string_view text, const std::string* separator, int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    size_t from = 0;
    for (int64_t n = 0; limit < 0 || n < limit; ++n) {
      const size_t at = find_in(text, *separator, from);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(from, at - from));
      from = at + separator->size();
    }
    parts.push_back(text.substr(from));
    return parts;
  }
  text = strip(text, nullptr, true, false);
  while (!text.empty()) {
    size_t end = 0;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    while (end < text.size() && !is_python_space(utf8_step(text, end).value))
      end += utf8_step(text, end).length;
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), nullptr, true, false);
  }
  return parts;
}

Value split_method(const Arguments& args) {
  Context& cx = args.cx;
  const std::string& self = text_of(args.self);
  const std::string* separator = args.text(0);
  if (separator && separator->empty()) throw Failure("split at an empty text");
  const int64_t limit = args.integer(1, -1);
  cx.charge(self.size());
  if (!separator || separator->size() == 1)  // each part costs a value
    cx.step(std::min<uint64_t>(self.size() / 16, static_cast<uint64_t>(limit < 0 ? INT64_MAX : limit)));
  const auto parts = split(self, separator, limit);
  cx.charge(parts.size() * sizeof(std::string_view));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(make_text(cx, std::string(part)));
  return make_sequence(cx, Kind::kList, std::move(items));
}

char32_t other_case(char32_t c, bool up) {
  // Unicode's SpecialCasing and a few others; title case, which differs from upper case.
  const bool special = c == 0xDF || c == 0x130 || c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3A3 ||
                       c == 0x3B0 || c == 0x587 || (c >= 0x1E96 && c <= 0x1E9A) ||
                       (c >= 0x1F50 && c <= 0x1FFC) || (c >= 0xFB00 && c <= 0xFB17);
  if (special)
    throw Failure(fmt::format("the other case of U+{:04X} is not known here", static_cast<uint32_t>(c)));
  const auto code = static_cast<utf8proc_int32_t>(c);
  return static_cast<char32_t>(up ? utf8proc_toupper(code) : utf8proc_tolower(code));
}

Value find_method(const Arguments& args) {
  const std::string& self = text_of(args.self);
  args.cx.charge(self.size());
  const size_t at = find_in(self, args.need_text(0));
  return integer(at == self.npos ? -1 : count_chars(std::string_view(self).substr(0, at)));
}

template <bool start>
Value begins_or_ends(const Arguments& args) {
  const std::string& part = args.need_text(0);
  args.cx.charge(part.size());
  return boolean(start ? text_of(args.self).starts_with(part) : text_of(args.self).ends_with(part));
}

template <bool left, bool right>
Value strip_method(const Arguments& args) {
  const std::string& self = text_of(args.self);
  const std::string* set = args.text(0);
  if (set) args.cx.charge(self.size() * (1 + set->size() / 16));
  return make_text(args.cx, std::string(strip(self, set, left, right)));
}

enum class Case { kUpper, kLower, kTitle, kCapitalize };
template <Case how>
Value case_method(const Arguments& args) {
  args.cx.charge(8 * text_of(args.self).size());
  std::string out;
  bool word = false;
  for (const std::string_view part : chars(text_of(args.self))) {
    const char32_t c = utf8_step(part, 0).value;
    const bool title = how == Case::kTitle || how == Case::kCapitalize;
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    // Title case of other characters differs from upper case; filter and method split words differently.
    if (title && !letter && (how == Case::kTitle || c >= 0x80) && !(c < 0x80 && is_python_space(c)))
      throw Failure("title and capitalize of other characters than English letters are not supported");
    const bool up =
        how == Case::kUpper || (how == Case::kTitle && !word) || (how == Case::kCapitalize && out.empty());
    append_utf8(out, other_case(c, up));
    word = letter;
  }
  return make_text(args.cx, std::move(out));
}

Value replace_method(const Arguments& args) {
  return replace(args.cx, text_of(args.self), args.need_text(0), args.need_text(1));
}

constexpr Builtin kTextMethods[] = {
    {"capitalize", {}, 0, case_method<Case::kCapitalize>},
    {"endswith", {"suffix"}, 1, begins_or_ends<false>},
    {"find", {"sub"}, 1, find_method},
    {"lower", {}, 0, case_method<Case::kLower>},
    {"lstrip", {"chars"}, 0, strip_method<true, false>},
    {"replace", {"old", "new"}, 2, replace_method},
    {"rstrip", {"chars"}, 0, strip_method<false, true>},
    {"split", {"sep", "maxsplit"}, 0, split_method},
    {"startswith", {"prefix"}, 1, begins_or_ends<true>},
    {"strip", {"chars"}, 0, strip_method<true, true>},
    {"title", {}, 0, case_method<Case::kTitle>},
    {"upper", {}, 0, case_method<Case::kUpper>},
};

Value get_method(const Arguments& args) {
  const Value* found = find(args.cx, args.self.as<Dict>(), *args[0]);
  return found ? *found : args[1] ? *args[1] : none();
}

template <bool keys, bool values>
Value members_method(const Arguments& args) {
  const auto& members = args.self.as<Dict>().members;
  std::vector<Value> items;
  items.reserve(members.size());
  for (const auto& [key, value] : members)
    items.push_back(!values ? key : !keys ? value : make_sequence(args.cx, Kind::kTuple, {key, value}));
  return make_sequence(args.cx, Kind::kView, std::move(items));
}

constexpr Builtin kDictMethods[] = {
    {"get", {"key", "default"}, 1, get_method},
    {"items", {}, 0, members_method<true, true>},
    {"keys", {}, 0, members_method<true, false>},
    {"values", {}, 0, members_method<false, true>},
};

Value range(const Arguments& args) {
  const int64_t first = args.integer(0, 0), start = args[1] ? first : 0,
                stop = args[1] ? args.integer(1, 0) : first;
  const int64_t step = args.integer(2, 1);
  if (step == 0) throw Failure("range in steps of zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) throw Failure("a range of more than 100000 numbers");
    items.push_back(integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_sequence(args.cx, Kind::kView, std::move(items));
}

// dict(mapping, name=value, ...) or namespace().
template <Kind kind>
Value make_filled(const Arguments& args) {
  Context& cx = args.cx;
  const Call& call = args.call;
  const size_t by_place = call.by_place();
  if (by_place > 1 || (by_place == 1 && !call.args[0].is(Kind::kDict)))
    throw Failure("dict and namespace take one dict at most, and arguments with a name");
  Value made = make_dict(cx);
  made.kind = kind;
  const auto add = [&](const Value& key, const Value& value) {
    if (kind == Kind::kDict) return put(cx, made.as<Dict>(), key, value);
    if (!is_text(key)) throw Failure("a namespace needs names");
    set_attribute(cx, made, text_of(key), value);
  };
  if (by_place == 1) {
    for (const auto& [key, value] : call.args[0].as<Dict>().members) add(key, value);
  }
  for (size_t i = 0; i < call.names.size(); ++i) add(make_text(cx, call.names[i]), call.args[by_place + i]);
  return made;
}

// Local time; %f is 000000, %z and %Z are empty, as without a time zone in Python.
std::string format_time(std::string format, std::time_t now) {
  for (const auto& [code, content] : {std::pair{"%f", "000000"}, std::pair{"%z", ""}, std::pair{"%Z", ""}})
    format = replace_all(format, code, content);
  if (format.size() > 256 || format.find('\0') != std::string::npos)
    throw Failure("strftime_now: a format of more than 256 bytes, or with a zero byte");
  std::tm local{};
  ::localtime_r(&now, &local);
  char buffer[1 << 14];
  return {buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &local)};
}

Value raise_exception(const Arguments& args) {
  throw Failure("the template refuses the conversation: " + to_text(args.cx, *args[0]));
}

Value strftime_now(const Arguments& args) {
  return make_text(args.cx, format_time(args.need_text(0), args.cx.now));
}

constexpr Builtin kFunctions[] = {
    {"range", {"start", "stop", "step"}, 1, range},
    {"dict", {Builtin::kAny}, 0, make_filled<Kind::kDict>},
    {"namespace", {Builtin::kAny}, 0, make_filled<Kind::kNamespace>},
    {"raise_exception", {"message"}, 1, raise_exception},
    {"strftime_now", {"format"}, 1, strftime_now},
};

}  // namespace

Value Context::lookup(std::string_view name) const {
  for (size_t at = frame_;; at = frames_[at].parent) {
    for (const auto& [known, value] : frames_[at].variables) {
      if (known != name) continue;
      if (in_condition && value.is(Kind::kNamespace))
        throw Failure("the condition of a {% for %} with a namespace is not supported");
      return value;
    }
    if (at == 0) break;
  }
  if (const Builtin* function = in_table<Builtin>(kFunctions, name)) {
    return with_object<Function>(
        Kind::kFunction, [function](Context& cx, const Call& call) { return (*function)(cx, none(), call); });
  }
  for (const char* other : {"lipsum", "cycler", "joiner"}) {
    if (name == other) throw Failure(fmt::format("the function '{}' is not supported", name));
  }
  return undefined(fmt::format("'{}' is undefined", name));
}

void Context::define(std::string_view name, Value value) {
  auto& variables = frames_[frame_].variables;
  for (auto& [known, old] : variables) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  step(variables.size() / 16);
  variables.emplace_back(name, std::move(value));
}

std::vector<const Value*> bind_arguments(const Call& call, std::string_view what,
                                         std::span<const std::string_view> parameters) {
  std::vector<const Value*> bound(parameters.size());
  if (call.by_place() > parameters.size())
    throw Failure(fmt::format("{} takes {} arguments at most here", what, parameters.size()));
  for (size_t i = 0; i < call.args.size(); ++i) {
    size_t place = i;
    if (i >= call.by_place()) {
      const std::string& name = call.names[i - call.by_place()];
      const auto at = std::find(parameters.begin(), parameters.end(), name);
      place = static_cast<size_t>(at - parameters.begin());
      if (at == parameters.end() || bound[place])
        throw Failure(fmt::format("{} takes no argument '{:.60}' here", what, name));
    }
    bound[place] = &call.args[i];
  }
  return bound;
}

Value Builtin::operator()(Context& cx, const Value& self, const Call& call) const {
  Arguments args{cx, self, call, name, {}};
  if (parameters[0] == kAny) return run(args);
  const auto count =
      static_cast<size_t>(std::find(parameters.begin(), parameters.end(), "") - parameters.begin());
  args.bound = bind_arguments(call, name, std::span(parameters).first(count));
  for (size_t i = 0; i < required; ++i) {
    if (!args[i]) throw Failure(fmt::format("{} needs its argument '{}'", name, parameters[i]));
  }
  return run(args);
}

int64_t Arguments::integer(size_t i, int64_t otherwise) const {
  if (!bound[i]) return otherwise;
  if (bound[i]->is(Kind::kUndefined)) fail_undefined(*bound[i]);
  if (!is_integral(*bound[i]))
    throw Failure(fmt::format("{} of a '{}'; it needs an integer", name, type_name(*bound[i])));
  return integral(*bound[i]);
}

const std::string* Arguments::text(size_t i) const {
  if (!bound[i] || bound[i]->is(Kind::kNone)) return nullptr;
  if (bound[i]->is(Kind::kUndefined)) fail_undefined(*bound[i]);
  if (!is_text(*bound[i]))
    throw Failure(fmt::format("{} of a '{}'; it needs a text", name, type_name(*bound[i])));
  return &text_of(*bound[i]);
}

const std::string& Arguments::need_text(size_t i) const {
  const std::string* given = text(i);
  if (!given) throw Failure(fmt::format("{} needs a text", name));
  return *given;
}

bool has_method(const Value& self, std::string_view name) {
  const auto known = methods_of(self);
  return std::find(known.begin(), known.end(), name) != known.end();
}

const Builtin* known_method(const Value& self, std::string_view name) {
  std::span<const Builtin> known;
  if (is_text(self)) known = kTextMethods;
  if (self.is(Kind::kDict)) known = kDictMethods;
  return in_table(known, name);
}

Value call_method(Context& cx, const Value& self, const std::string& name, const Call& call) {
  if (const Builtin* method = known_method(self, name)) return (*method)(cx, self, call);
  const std::string type = is_text(self) ? "text" : fmt::format("'{}'", type_name(self));
  throw Failure(fmt::format("the method '{}' of a {} is not supported", name, type));
}

Value call_value(Context& cx, const Value& function, const Call& call) {
  if (function.is(Kind::kFunction) || function.is(Kind::kMacro)) return function.as<Function>()(cx, call);
  if (function.is(Kind::kUndefined)) fail_undefined(function);
  throw Failure(fmt::format("a '{}' cannot be called", type_name(function)));
}

Value replace(Context& cx, const std::string& text, const std::string& old, const std::string& with) {
  if (old.empty()) throw Failure("replace of an empty text is not supported");
  cx.charge(text.size());
  std::string out;
  size_t from = 0;
  for (size_t at; (at = find_in(text, old, from)) != text.npos; from = at + old.size()) {
    cx.reserve_text(out.size() + at - from + with.size(), with.size());
    out.append(text, from, at - from) += with;
  }
  return make_text(cx, out.append(text, from));
}

}  // namespace lariat::jinja
