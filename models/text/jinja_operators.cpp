#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"

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

double modulo(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Failure("division by zero");
    return real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t square = base; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, square, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(square, square, &square)) fail_overflow();
  }
  return integer(result);
}

Value integer_arithmetic(std::string_view symbol, int64_t a, int64_t b) {
  if (b == 0 && (symbol[0] == '/' || symbol == "%")) throw Failure("division by zero");
  int64_t result = 0;
  bool overflow = false;
  if (symbol == "/") return real(static_cast<double>(a) / static_cast<double>(b));
  if (symbol == "**") return power(a, b);
  if (symbol == "//") return integer(floor_divide(a, b));
  if (symbol == "%") return integer(modulo(a, b));
  if (symbol == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (symbol == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (symbol == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (overflow) fail_overflow();
  return integer(result);
}

Value float_arithmetic(std::string_view symbol, double a, double b) {
  if (b == 0 && (symbol[0] == '/' || symbol == "%")) throw Failure("division by zero");
  if (symbol == "+") return real(a + b);
  if (symbol == "-") return real(a - b);
  if (symbol == "*") return real(a * b);
  if (symbol == "/") return real(a / b);
  if (symbol == "%") return real(modulo(a, b));
  if (symbol == "//") {
    const double quotient = (a - modulo(a, b)) / b, whole = std::floor(quotient);
    return real(quotient - whole > 0.5 ? whole + 1 : whole);
  }
  if (a == 0 && b < 0) throw Failure("division by zero");
  if (a < 0 && b != std::floor(b)) throw Failure("a power that is a complex number is not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw Failure("a power that is too large");
  return real(result);
}

// text * n, list * n
Value repeat(Context& cx, const Value& v, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  const uint64_t size = is_text(v) ? text_of(v).size() : items_of(v).size() * sizeof(Value);
  cx.reserve_text(0);
  if (size > 0 && times > UINT32_MAX / size) throw Failure("a repetition longer than any chat needs");
  cx.reserve_text(size * times);
  if (is_text(v)) {
    std::string text;
    text.reserve(size * times);
    for (uint64_t i = 0; i < times && size > 0; ++i) text += text_of(v);
    return make_text(cx, std::move(text));
  }
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && size > 0; ++i)
    items.insert(items.end(), items_of(v).begin(), items_of(v).end());
  return make_sequence(cx, v.kind, std::move(items));
}

bool can_repeat(const Value& v) { return is_text(v) || v.is(Kind::kList) || v.is(Kind::kTuple); }

Value add(Context& cx, Value a, const Value& b) {
  if (is_text(a) && is_text(b)) {
    cx.reserve_text(text_of(a).size() + text_of(b).size(), text_of(b).size());
    if (a.object.use_count() == 1) {  // nobody else sees it grow
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

// A bound of a slice as Python clips it to [low, high].
int64_t bound(const Value& v, int64_t length, int64_t low, int64_t high, int64_t otherwise) {
  if (v.is(Kind::kNone)) return otherwise;
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!is_integral(v)) throw Failure(fmt::format("a slice by a '{}'", type_name(v)));
  int64_t at = integral(v);
  if (at < 0) at = at < -length ? low : at + length;
  return std::clamp(at, low, high);
}

// The items that a slice picks, in order.
std::vector<int64_t> picked(int64_t length, const Value& start, const Value& stop, const Value& step_value) {
  int64_t step = 1;
  if (!step_value.is(Kind::kNone)) {
    if (!is_integral(step_value))
      throw Failure(fmt::format("a slice in steps of '{}'", type_name(step_value)));
    step = std::clamp<int64_t>(integral(step_value), -INT32_MAX, INT32_MAX);
  }
  if (step == 0) throw Failure("a slice in steps of zero");
  std::vector<int64_t> all;
  if (step > 0) {
    const int64_t end = bound(stop, length, 0, length, length);
    for (int64_t i = bound(start, length, 0, length, 0); i < end; i += step) all.push_back(i);
  } else {
    const int64_t end = bound(stop, length, -1, length - 1, -1);
    for (int64_t i = bound(start, length, -1, length - 1, length - 1); i > end; i += step) all.push_back(i);
  }
  return all;
}

}  // namespace

Value arithmetic(Context& cx, std::string_view symbol, Value a, const Value& b) {
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (is_integral(a) && is_integral(b)) return integer_arithmetic(symbol, integral(a), integral(b));
  if (is_number(a) && is_number(b)) return float_arithmetic(symbol, to_double(a), to_double(b));
  if (symbol == "+") return add(cx, std::move(a), b);
  if (symbol == "*" && can_repeat(a) && is_integral(b)) return repeat(cx, a, integral(b));
  if (symbol == "*" && can_repeat(b) && is_integral(a)) return repeat(cx, b, integral(a));
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
  if (is_number(a) && is_number(b) && (std::isnan(to_double(a)) || std::isnan(to_double(b)))) return false;
  const int sign = order(cx, a, b, symbol);
  if (symbol == "<") return sign < 0;
  if (symbol == "<=") return sign <= 0;
  return symbol == ">" ? sign > 0 : sign >= 0;
}

Value attribute(Context& cx, const Value& object, const std::string& name) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (object.is(Kind::kLoop) || object.is(Kind::kMarkup))
    throw Failure(fmt::format("attributes of a '{}' are not available here", type_name(object)));
  if (has_method(object, name)) {
    if (changes_its_object(object, name))
      return undefined(fmt::format("'{}' of a '{}' is refused, as templates may not change values", name,
                                   type_name(object)));
    Value method;
    method.kind = Kind::kMethod;
    cx.charge(sizeof(Method));
    method.object = std::make_shared<Method>(Method{object, name});
    return method;
  }
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    if (const Value* value = find(cx, object.as<Dict>(), name)) return *value;
  }
  return undefined(fmt::format("a '{}' has no attribute '{:.60}'", type_name(object), name));
}

void set_attribute(Context& cx, const Value& space, const std::string& name, const Value& value) {
  if (name[0] == '_')
    throw Failure(fmt::format("a namespace takes no names with an underscore, as '{}'", name));
  // So that no value can hold itself, and a macro does not outlive what it sees.
  if (!is_plain(value)) throw Failure(fmt::format("a namespace cannot hold a '{}'", type_name(value)));
  put(cx, space.as<Dict>(), constant_text(name), value);
}

Value item(Context& cx, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (object.is(Kind::kMarkup)) throw Failure("items of a 'Markup' are not available here");
  if (object.is(Kind::kDict)) {
    if (const Value* value = find(cx, object.as<Dict>(), key)) return *value;
  } else if (is_integral(key) && (is_text(object) || is_sequence(object)) && !object.is(Kind::kView) &&
             !object.is(Kind::kIterator)) {
    const int64_t size = length(cx, object), at = integral(key) < 0 ? integral(key) + size : integral(key);
    if (at >= 0 && at < size) {
      cx.charge(is_text(object) ? text_of(object).size() * sizeof(std::string_view) : 0);
      if (!is_text(object)) return items_of(object)[static_cast<size_t>(at)];
      return make_text(cx, std::string(chars(text_of(object))[static_cast<size_t>(at)]));
    }
  } else if (is_text(object) && key.is(Kind::kUndefined)) {
    fail_undefined(key);
  }
  if (is_text(key)) return attribute(cx, object, text_of(key));
  return undefined(fmt::format("a '{}' has no element {}", type_name(object), repr(cx, key)));
}

Value slice(Context& cx, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  const bool known =
      is_text(object) || object.is(Kind::kList) || object.is(Kind::kTuple) || object.is(Kind::kRange);
  if (!known) throw Failure(fmt::format("a '{}' cannot be sliced", type_name(object)));
  if (is_text(object)) {
    cx.charge(text_of(object).size() * sizeof(std::string_view));
    const std::vector<std::string_view> all = chars(text_of(object));
    std::string text;
    for (const int64_t i : picked(static_cast<int64_t>(all.size()), start, stop, step))
      text += all[static_cast<size_t>(i)];
    return make_text(cx, std::move(text));
  }
  std::vector<Value> items;
  cx.charge(items_of(object).size() * sizeof(Value));
  for (const int64_t i : picked(static_cast<int64_t>(items_of(object).size()), start, stop, step))
    items.push_back(items_of(object)[static_cast<size_t>(i)]);
  return make_sequence(cx, object.kind, std::move(items));  // a range without its name cannot be printed
}

}  // namespace lariat::jinja
