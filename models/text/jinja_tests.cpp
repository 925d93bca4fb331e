#include <fmt/format.h>

#include <algorithm>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_text.h"

namespace lariat::jinja {
namespace {

using Test = bool (*)(Context&, const Value&, const Value*);

struct Entry {
  std::string_view name;
  size_t arguments;  // besides the input
  Test test;
};

int64_t need_integer(const Value& v) {
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!is_integral(v)) throw Failure(fmt::format("an integer is needed, not a '{}'", type_name(v)));
  return integral(v);
}

bool divisible(Context&, const Value& v, const Value* by) {
  const int64_t divisor = need_integer(*by);
  if (divisor == 0) throw Failure("division by zero");
  return divisor == -1 || need_integer(v) % divisor == 0;
}

bool same(Context&, const Value& v, const Value* other) {
  if (v.kind != other->kind) return false;
  if (v.is(Kind::kNone)) return true;
  if (v.is(Kind::kBool)) return v.boolean == other->boolean;
  if (v.kind <= Kind::kMarkup) throw Failure("'sameas' of numbers or texts is not supported; use ==");
  return v.object == other->object;
}

bool is_cased(Context& cx, const Value& v, bool (*test)(std::string_view)) {
  const std::string text = to_text(cx, v);
  return test(text);
}

template <Kind kind>
bool is_kind(Context&, const Value& v, const Value*) {
  return v.kind == kind;
}
template <bool truth>
bool is_bool(Context&, const Value& v, const Value*) {
  return v.is(Kind::kBool) && v.boolean == truth;
}
bool is_any_text(const Value& v) { return is_text(v) || v.is(Kind::kMarkup); }

constexpr Test kEqual = [](Context& cx, const Value& v, const Value* other) { return equal(cx, v, *other); };
constexpr Test kUnequal = [](Context& cx, const Value& v, const Value* other) {
  return !equal(cx, v, *other);
};
constexpr Test kLess = [](Context& cx, const Value& v, const Value* other) {
  return compare(cx, "<", v, *other);
};
constexpr Test kNotMore = [](Context& cx, const Value& v, const Value* other) {
  return compare(cx, "<=", v, *other);
};
constexpr Test kMore = [](Context& cx, const Value& v, const Value* other) {
  return compare(cx, ">", v, *other);
};
constexpr Test kNotLess = [](Context& cx, const Value& v, const Value* other) {
  return compare(cx, ">=", v, *other);
};

constexpr Entry kTests[] = {
    {"defined", 0, [](Context&, const Value& v, const Value*) { return !v.is(Kind::kUndefined); }},
    {"undefined", 0, is_kind<Kind::kUndefined>},
    {"none", 0, is_kind<Kind::kNone>},
    {"boolean", 0, is_kind<Kind::kBool>},
    {"true", 0, is_bool<true>},
    {"false", 0, is_bool<false>},
    {"integer", 0, is_kind<Kind::kInteger>},
    {"float", 0, is_kind<Kind::kFloat>},
    {"number", 0, [](Context&, const Value& v, const Value*) { return is_number(v); }},
    {"string", 0, [](Context&, const Value& v, const Value*) { return is_any_text(v); }},
    {"mapping", 0, is_kind<Kind::kDict>},
    // Jinja's: what has a length and can be indexed. A dict is one, and so is what is undefined.
    {"sequence", 0,
     [](Context&, const Value& v, const Value*) {
       return is_any_text(v) || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kRange) ||
              v.is(Kind::kDict) || v.is(Kind::kUndefined);
     }},
    {"iterable", 0,
     [](Context&, const Value& v, const Value*) {
       return is_any_text(v) || is_sequence(v) || v.is(Kind::kDict) || v.is(Kind::kUndefined) ||
              v.is(Kind::kLoop);
     }},
    {"callable", 0,
     [](Context&, const Value& v, const Value*) {
       return v.is(Kind::kMacro) || v.is(Kind::kMethod) || v.is(Kind::kFunction) || v.is(Kind::kLoop) ||
              v.is(Kind::kUndefined);
     }},
    {"odd", 0, [](Context&, const Value& v, const Value*) { return need_integer(v) % 2 != 0; }},
    {"even", 0, [](Context&, const Value& v, const Value*) { return need_integer(v) % 2 == 0; }},
    {"lower", 0, [](Context& cx, const Value& v, const Value*) { return is_cased(cx, v, is_lower); }},
    {"upper", 0, [](Context& cx, const Value& v, const Value*) { return is_cased(cx, v, is_upper); }},
    {"divisibleby", 1, divisible},
    {"sameas", 1, same},
    {"in", 1, [](Context& cx, const Value& v, const Value* other) { return contains(cx, *other, v); }},
    {"eq", 1, kEqual},
    {"equalto", 1, kEqual},
    {"==", 1, kEqual},
    {"ne", 1, kUnequal},
    {"!=", 1, kUnequal},
    {"lt", 1, kLess},
    {"lessthan", 1, kLess},
    {"<", 1, kLess},
    {"le", 1, kNotMore},
    {"<=", 1, kNotMore},
    {"gt", 1, kMore},
    {"greaterthan", 1, kMore},
    {">", 1, kMore},
    {"ge", 1, kNotLess},
    {">=", 1, kNotLess},
};

}  // namespace

bool apply_test(Context& cx, const std::string& name, const Call& call) {
  const auto* entry =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Entry& e) { return e.name == name; });
  if (entry == std::end(kTests)) {
    throw Failure(
        fmt::format("unknown test '{:.40}'; lariat knows defined, none, string, mapping, sequence, number, "
                    "eq, in and other tests of Jinja",
                    name));
  }
  if (!call.names.empty() || call.args.size() != entry->arguments + 1)
    throw Failure(fmt::format("the test '{}' takes {} argument{}", name, entry->arguments,
                              entry->arguments == 1 ? "" : "s"));
  return entry->test(cx, call.args[0], entry->arguments ? &call.args[1] : nullptr);
}

}  // namespace lariat::jinja
