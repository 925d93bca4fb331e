#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"
#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

enum Function : int64_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };
constexpr std::string_view kNames[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};

Value range(Context& cx, const Call& call) {
  const Arguments args(call, "range", {"start", "stop", "step"}, 1);
  const int64_t first = args.integer(0, 0), start = args[1] ? first : 0,
                stop = args[1] ? args.integer(1, 0) : first;
  const int64_t step = args.integer(2, 1);
  if (step == 0) throw Failure("range in steps of zero");
  std::string name = step == 1 ? fmt::format("range({}, {})", start, stop)
                               : fmt::format("range({}, {}, {})", start, stop, step);
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) throw Failure("a range of more than 100000 numbers");
    items.push_back(integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_sequence(cx, Kind::kRange, std::move(items), std::move(name));
}

// dict(mapping or pairs, name=value, ...), and namespace() the same way.
Value dict(Context& cx, const Call& call) {
  const size_t by_place = call.args.size() - call.names.size();
  if (by_place > 1) throw Failure("dict and namespace take one argument without a name at most");
  Value made = make_dict(cx);
  auto& members = made.as<Dict>();
  if (by_place == 1 && call.args[0].is(Kind::kDict)) {
    for (const auto& [key, value] : call.args[0].as<Dict>().members) put(cx, members, key, value);
  } else if (by_place == 1) {
    const Value pairs = to_sequence(cx, call.args[0]);
    for (const Value& pair : items_of(pairs)) {
      const Value both = to_sequence(cx, pair);
      if (items_of(both).size() != 2) throw Failure("dict needs a mapping or pairs");
      put(cx, members, items_of(both)[0], items_of(both)[1]);
    }
  }
  for (size_t i = 0; i < call.names.size(); ++i)
    put(cx, members, make_text(cx, call.names[i]), call.args[by_place + i]);
  return made;
}

Value make_namespace(Context& cx, const Call& call) {
  const Value members = dict(cx, call);
  Value space = make_dict(cx);
  space.kind = Kind::kNamespace;
  for (const auto& [key, value] : members.as<Dict>().members) {
    if (!is_text(key)) throw Failure("a namespace needs names");
    set_attribute(cx, space, text_of(key), value);
  }
  return space;
}

// Local time; %f is 000000, and %z and %Z are empty, as of a Python time without a zone.
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

void write_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const auto c = static_cast<uint32_t>(step.value);
    static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b", kEscaped = "\"\\nrtfb";
    const size_t known = c < 0x80 ? kPlain.find(static_cast<char>(c)) : kPlain.npos;
    if (known != kPlain.npos) {
      out += '\\';
      out += kEscaped[known];
    } else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", c);
    } else if (ascii && c >= 0x10000) {
      out +=
          fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out += text.substr(at, step.length);
    }
    at += step.length;
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Context& cx, const JsonStyle& style) : cx_(cx), style_(style) {}

  std::string run(const Value& v) {
    write(v);
    return std::move(out_);
  }

 private:
  static std::string number(double d) {
    return std::isnan(d) ? "NaN" : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity") : float_repr(d);
  }

  std::string key_text(const Value& key) const {
    switch (key.kind) {
      case Kind::kText:
        return text_of(key);
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.boolean ? "true" : "false";
      case Kind::kInteger:
        return std::to_string(key.integer);
      case Kind::kFloat:
        return number(key.real);
      default:
        throw Failure(fmt::format("tojson: a '{}' cannot be a key", type_name(key)));
    }
  }

  void new_line() {
    if (!style_.indent) return;
    cx_.charge(style_.indent->size() * static_cast<size_t>(depth_));
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += *style_.indent;
  }

  template <class Items, class Write>
  void write_all(char open, char close, const Items& items, const Write& write_one) {
    out_ += open;
    ++depth_;
    for (const auto& item : items) {
      if (&item != &items.front()) out_ += style_.item_separator;
      new_line();
      write_one(item);
    }
    --depth_;
    if (!items.empty()) new_line();
    out_ += close;
  }

  void write(const Value& v) {
    cx_.step();
    const size_t before = out_.size();
    switch (v.kind) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += v.boolean ? "true" : "false";
        break;
      case Kind::kInteger:
        out_ += std::to_string(v.integer);
        break;
      case Kind::kFloat:
        out_ += number(v.real);
        break;
      case Kind::kText:
      case Kind::kMarkup:
        cx_.reserve_text(6 * text_of(v).size());
        write_string(out_, text_of(v), style_.ascii);
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_all('[', ']', items_of(v), [&](const Value& item) { write(item); });
        break;
      case Kind::kDict:
        write_dict(v.as<Dict>());
        break;
      default:
        throw Failure(fmt::format("tojson: a '{}' has no JSON", type_name(v)));
    }
    cx_.reserve_text(out_.size(), out_.size() - before);
  }

  void write_dict(const Dict& dict) {
    auto members = dict.members;
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [&](const auto& a, const auto& b) { return order(cx_, a.first, b.first) < 0; });
    }
    write_all('{', '}', members, [&](const auto& member) {
      write_string(out_, key_text(member.first), style_.ascii);
      out_ += style_.key_separator;
      write(member.second);
    });
  }

  Context& cx_;
  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

Arguments::Arguments(const Call& call, std::string_view what,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : what_(what) {
  const size_t by_place = call.args.size() - call.names.size();
  if (by_place > parameters.size())
    throw Failure(fmt::format("{} takes {} arguments at most", what, parameters.size()));
  for (size_t i = 0; i < by_place; ++i) bound_[i] = &call.args[i];
  for (size_t i = 0; i < call.names.size(); ++i) {
    const auto* at = std::find(parameters.begin(), parameters.end(), call.names[i]);
    if (at == parameters.end() || bound_[static_cast<size_t>(at - parameters.begin())])
      throw Failure(fmt::format("{} takes no argument '{:.60}' here", what, call.names[i]));
    bound_[static_cast<size_t>(at - parameters.begin())] = &call.args[by_place + i];
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound_[i]) throw Failure(fmt::format("{} needs its argument '{}'", what, parameters.begin()[i]));
  }
}

int64_t Arguments::integer(size_t i, int64_t otherwise) const {
  if (!bound_[i]) return otherwise;
  if (bound_[i]->is(Kind::kUndefined)) fail_undefined(*bound_[i]);
  if (!is_integral(*bound_[i]))
    throw Failure(fmt::format("{} of a '{}'; it needs an integer", what_, type_name(*bound_[i])));
  return integral(*bound_[i]);
}

bool Arguments::boolean(size_t i, bool otherwise) const { return bound_[i] ? truth(*bound_[i]) : otherwise; }

const std::string* Arguments::text(size_t i) const {
  if (!bound_[i] || bound_[i]->is(Kind::kNone)) return nullptr;
  if (bound_[i]->is(Kind::kUndefined)) fail_undefined(*bound_[i]);
  if (!is_text(*bound_[i]))
    throw Failure(fmt::format("{} of a '{}'; it needs a text", what_, type_name(*bound_[i])));
  return &text_of(*bound_[i]);
}

std::optional<Value> find_function(std::string_view name) {
  const auto* at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames)) {
    for (const char* other : {"lipsum", "cycler", "joiner"}) {
      if (name == other) throw Failure(fmt::format("the function '{}' is not supported", name));
    }
    return std::nullopt;
  }
  Value function = integer(at - std::begin(kNames));
  function.kind = Kind::kFunction;
  return function;
}

Value call_function(Context& cx, const Value& function, const Call& call) {
  switch (function.integer) {
    case Function::kRange:
      return range(cx, call);
    case Function::kDict:
      return dict(cx, call);
    case Function::kNamespace:
      return make_namespace(cx, call);
    case Function::kRaiseException: {
      const Arguments args(call, "raise_exception", {"message"}, 1);
      throw Failure("the template refuses the conversation: " + to_text(cx, *args[0]));
    }
    default: {
      const Arguments args(call, "strftime_now", {"format"}, 1);
      const std::string* format = args.text(0);
      if (!format) throw Failure("strftime_now needs a format");
      return make_text(cx, format_time(*format, cx.now));
    }
  }
}

std::string to_json(Context& cx, const Value& v, const JsonStyle& style) {
  return JsonWriter(cx, style).run(v);
}

}  // namespace lariat::jinja
