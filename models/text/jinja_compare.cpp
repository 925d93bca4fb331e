// Which values are equal, in order, or in each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/text/jinja_text.h"
#include "models/text/jinja_value.h"

namespace lariat::jinja {
namespace {

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

}  // namespace

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

}  // namespace lariat::jinja
