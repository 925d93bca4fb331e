#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja_context.h"

// Throws Failure where Python or Jinja would raise, and for unsupported features.
namespace lariat::jinja {

// Binds arguments as in Python; nullptr: not given.
std::vector<const Value*> bind_arguments(const Call& call, std::string_view what,
                                         std::span<const std::string_view> parameters);

// Input of a filter or `self` of a method, and the arguments in parentheses.
struct Arguments {
  Context& cx;
  const Value& self;
  const Call& call;
  std::string_view name;
  std::vector<const Value*> bound;  // nullptr: not given

  const Value* operator[](size_t i) const { return bound[i]; }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool boolean(size_t i, bool otherwise) const { return bound[i] ? truth(*bound[i]) : otherwise; }
  const std::string* text(size_t i) const;  // nullptr: not given or None
  const std::string& need_text(size_t i) const;
};

// The first `required` parameters have no default. The single parameter kAny accepts any call.
struct Builtin {
  static constexpr std::string_view kAny = "*";
  std::string_view name;
  std::array<std::string_view, 3> parameters;
  size_t required;
  Value (*run)(const Arguments&);

  Value operator()(Context& cx, const Value& self, const Call& call) const;
};

template <class Entry>
const Entry* in_table(std::span<const Entry> table, std::string_view name) {
  for (const Entry& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// jinja_operators.cpp
Value arithmetic(Context& cx, std::string_view symbol, Value a, const Value& b);
Value negative(const Value& v);
bool compare(Context& cx, std::string_view symbol, const Value& a, const Value& b);
Value attribute(Context& cx, const Value& object, const std::string& name);
Value item(Context& cx, const Value& object, const Value& key);
void set_attribute(Context& cx, const Value& space, const std::string& name, const Value& value);
Value slice(Context& cx, const Value& object, const Value& start, const Value& stop, const Value& step);

// jinja_filters.cpp
Value apply_filter(Context& cx, const std::string& name, const Value& input, const Call& call);
Value apply_test(Context& cx, const std::string& name, const Value& input, const Call& call);

// jinja_calls.cpp
bool has_method(const Value& self, std::string_view name);              // Python's methods, supported or not
const Builtin* known_method(const Value& self, std::string_view name);  // nullptr: unsupported
Value call_method(Context& cx, const Value& self, const std::string& name, const Call& call);
Value call_value(Context& cx, const Value& function, const Call& call);
Value replace(Context& cx, const std::string& text, const std::string& old, const std::string& with);

}  // namespace lariat::jinja
