#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/text/jinja_eval.h"

namespace lariat::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view symbol, const Value& a, const Value& b) {
  throw Failure(fmt::format("'{}' has no meaning between '{}' and '{}'", symbol, type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() { throw Failure("an integer that does not fit into 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) fail_overflow();
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Value integer_arithmetic(std::string_view symbol, int64_t a, int64_t b) {
  if (b == 0 && (symbol[0] == '/' || symbol == "%")) throw Failure("division by zero");
  int64_t result = 0;
  bool overflow = false;
  if (symbol == "/") return real(static_cast<double>(a) / static_cast<double>(b));
  if (symbol == "//") return integer(floor_divide(a, b));
  if (symbol == "%") return integer(modulo(a, b));
  if (symbol == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (symbol == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (symbol == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (overflow) fail_overflow();
  return integer(result);
}

Value float_arithmetic(std::string_view symbol, double a, double b) {
  if (symbol == "+") return real(a + b);
  if (symbol == "-") return real(a - b);
  if (symbol == "*") return real(a * b);
  if (symbol != "/") throw Failure(fmt::format("'{}' between floats is not supported", symbol));
  if (b == 0) throw Failure("division by zero");
  return real(a / b);
}

Value repeat(Context& cx, const std::string& text, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (!text.empty() && times > UINT32_MAX / text.size())
    throw Failure("a repetition longer than any chat needs");
  cx.reserve_text(text.size() * times);
  std::string out;
  out.reserve(text.size() * times);
  for (uint64_t i = 0; i < times && !text.empty(); ++i) out += text;
  return make_text(cx, std::move(out));
}

Value add(Context& cx, Value a, const Value& b) {
  if (is_text(a) && is_text(b)) {
    cx.reserve_text(text_of(a).size() + text_of(b).size(), text_of(b).size());
    if (a.object.use_count() == 1) {  // no other reference sees the growth
      a.as<Text>() += text_of(b);
      return a;
    }
    return make_text(cx, text_of(a) + text_of(b));
  }
  if (a.kind != b.kind || (!a.is(Kind::kList) && !a.is(Kind::kTuple))) fail_operands("+", a, b);
  std::vector<Value> items = items_of(a);
  items.insert(items.end(), items_of(b).begin(), items_of(b).end());
  return make_sequence(cx, a.kind, std::move(items));
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
  const Value all = to_sequence(cx, container);
  return std::any_of(items_of(all).begin(), items_of(all).end(),
                     [&](const Value& member) { return equal(cx, member, item); });
}

int64_t bound(const Value& v, int64_t length, int64_t otherwise) {
  if (v.is(Kind::kNone)) return otherwise;
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!is_integral(v)) throw Failure(fmt::format("a slice by a '{}'", type_name(v)));
  const int64_t at = integral(v);
  return at < 0 ? std::max<int64_t>(at, -length) + length : std::min(at, length);
}

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto at = static_cast<int64_t>(loop.at), length = static_cast<int64_t>(loop.items.size());
  if (name == "index0") return integer(at);
  if (name == "index") return integer(at + 1);
  if (name == "first") return boolean(at == 0);
  if (name == "last") return boolean(at + 1 == length);
  if (name == "length") return integer(length);
  if (name == "revindex") return integer(length - at);
  if (name == "revindex0") return integer(length - at - 1);
  if (name == "previtem") return at > 0 ? loop.items[loop.at - 1] : undefined("there is no previous item");
  if (name == "nextitem")
    return at + 1 < length ? loop.items[loop.at + 1] : undefined("there is no next item");
  throw Failure(
      fmt::format("unknown 'loop.{:.40}'; lariat knows index, index0, revindex, revindex0, first, last, "
                  "length, previtem and nextitem",
                  name));
}

}  // namespace

Value arithmetic(Context& cx, std::string_view symbol, Value a, const Value& b) {
  if (symbol == "~") {
    if (!is_text(a)) a = make_text(cx, to_text(cx, a));
    return add(cx, std::move(a), is_text(b) ? b : make_text(cx, to_text(cx, b)));
  }
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (symbol == "**") throw Failure("'**' is not supported");
  if (is_integral(a) && is_integral(b)) return integer_arithmetic(symbol, integral(a), integral(b));
  if (is_number(a) && is_number(b)) return float_arithmetic(symbol, to_double(a), to_double(b));
  if (symbol == "+") return add(cx, std::move(a), b);
  if (symbol == "*" && is_text(a) && is_integral(b)) return repeat(cx, text_of(a), integral(b));
  if (symbol == "*" && is_text(b) && is_integral(a)) return repeat(cx, text_of(b), integral(a));
  if (symbol == "%" && is_text(a)) throw Failure("formatting a text with '%' is not supported");
  fail_operands(symbol, a, b);
}

Value negative(const Value& v) {
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (v.is(Kind::kFloat)) return real(-v.real);
  if (!is_integral(v)) throw Failure(fmt::format("a '{}' has no sign", type_name(v)));
  if (integral(v) == INT64_MIN) fail_overflow();
  return integer(-integral(v));
}

bool compare(Context& cx, std::string_view symbol, const Value& a, const Value& b) {
  if (symbol == "==") return equal(cx, a, b);
  if (symbol == "!=") return !equal(cx, a, b);
  if (symbol == "in") return contains(cx, b, a);
  if (symbol == "not in") return !contains(cx, b, a);
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  const auto holds = [&](const auto& x, const auto& y) {
    return symbol == "<" ? x < y : symbol == "<=" ? x <= y : symbol == ">" ? x > y : x >= y;
  };
  if (is_number(a) && is_number(b)) return holds(exact(a), exact(b));
  if (!is_text(a) || !is_text(b)) fail_operands(symbol, a, b);
  cx.charge(std::min(text_of(a).size(), text_of(b).size()));
  return holds(text_of(a), text_of(b));
}

Value attribute(Context& cx, const Value& object, const std::string& name) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (object.is(Kind::kLoop)) return loop_attribute(object.as<Loop>(), name);
  if (has_method(object, name))
    throw Failure(fmt::format("the method '{}' of a '{}' without a call", name, type_name(object)));
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    if (const Value* value = find(cx, object.as<Dict>(), name)) return *value;
  }
  return undefined(fmt::format("a '{}' has no attribute '{:.60}'", type_name(object), name));
}

void set_attribute(Context& cx, const Value& space, const std::string& name, const Value& value) {
  if (!space.is(Kind::kNamespace))
    throw Failure(fmt::format("only attributes of a namespace can be set, not of a '{}'", type_name(space)));
  if (name[0] == '_')
    throw Failure(fmt::format("a namespace takes no names with an underscore, as '{}'", name));
  if (!is_plain(value)) throw Failure(fmt::format("a namespace cannot hold a '{}'", type_name(value)));
  put(cx, space.as<Dict>(), constant_text(name), value);
}

Value item(Context& cx, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  const bool indexed = is_text(object) || object.is(Kind::kList) || object.is(Kind::kTuple);
  if (object.is(Kind::kView)) throw Failure("an item of a 'view' is not supported; make it a list first");
  if (object.is(Kind::kDict)) {
    if (const Value* value = find(cx, object.as<Dict>(), key)) return *value;
  } else if (is_integral(key) && indexed) {
    const int64_t size = length(cx, object), at = integral(key) < 0 ? integral(key) + size : integral(key);
    if (at >= 0 && at < size) {
      if (!is_text(object)) return items_of(object)[static_cast<size_t>(at)];
      cx.charge(text_of(object).size() * sizeof(std::string_view));
      return make_text(cx, std::string(chars(text_of(object))[static_cast<size_t>(at)]));
    }
  } else if (is_text(object) && key.is(Kind::kUndefined)) {
    fail_undefined(key);
  }
  if (is_text(key)) return attribute(cx, object, text_of(key));
  return undefined(fmt::format("a '{}' has no such element", type_name(object)));
}

Value slice(Context& cx, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (!is_text(object) && !object.is(Kind::kList) && !object.is(Kind::kTuple))
    throw Failure(fmt::format("a '{}' cannot be sliced", type_name(object)));
  const int64_t by = step.is(Kind::kNone) ? 1 : is_integral(step) ? integral(step) : 0;
  if (by != 1 && (by != -1 || !start.is(Kind::kNone) || !stop.is(Kind::kNone)))
    throw Failure("a slice in steps is not supported, apart from [::-1]");
  const Value all = to_sequence(cx, object);  // for a string: its characters
  const int64_t size = length(cx, all), begin = bound(start, size, 0);
  const int64_t end = std::max(begin, bound(stop, size, size));
  std::vector<Value> items(items_of(all).begin() + begin, items_of(all).begin() + end);
  if (by < 0) std::reverse(items.begin(), items.end());
  if (!is_text(object)) return make_sequence(cx, object.kind, std::move(items));
  std::string text;
  for (const Value& c : items) text += text_of(c);
  return make_text(cx, std::move(text));
}

}  // namespace lariat::jinja
