#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja_syntax.h"
#include "models/text/jinja_value.h"

// The parts of expressions, apart from scopes: each throws Failure where Python or Jinja would raise, and
// for what lariat does not know.
namespace lariat::jinja {

struct Call {
  std::vector<Value> args;         // of a filter or test: the input first
  std::vector<std::string> names;  // of the last args
  size_t by_place() const { return args.size() - names.size(); }
};

// The arguments of a call bound to parameters as Python does it; nullptr for those not given. `what` is
// called, in errors.
std::vector<const Value*> bind_arguments(const Call& call, std::string_view what,
                                         std::span<const std::string_view> parameters);

// The parameters of something that can be called; the first `required` have no default.
struct Signature {
  std::string_view name;
  std::array<std::string_view, 3> parameters{};
  size_t required = 0;
  bool operator==(std::string_view other) const { return name == other; }
};

class Arguments {
 public:
  Arguments(const Call& call, const Signature& signature);
  const Value* operator[](size_t i) const { return bound_[i]; }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool boolean(size_t i, bool otherwise) const;
  const std::string* text(size_t i) const;  // nullptr: not given or none
  const std::string& need_text(size_t i) const;

 private:
  std::string_view name_;
  std::vector<const Value*> bound_;
};

// The entry of a table with that name, or nullptr.
template <class Table>
const auto* in_table(const Table& table, std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [&](const auto& entry) { return entry.first == name; });
  return found == std::end(table) ? nullptr : found;
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
Value apply_filter(Context& cx, const std::string& name, const Call& call);
bool apply_test(Context& cx, const std::string& name, const Call& call);

// jinja_calls.cpp: methods of texts, dicts, lists and tuples
bool has_method(const Value& self, std::string_view name);  // those that Python has, known here or not
Value call_method(Context& cx, const Value& self, const std::string& name, const Call& call);
enum class Case { kUpper, kLower, kTitle, kCapitalize };
Value change_case(Context& cx, const std::string& text, Case how);
Value replace(Context& cx, const std::string& text, const std::string& old, const std::string& with);
Value strip_text(Context& cx, const std::string& text, const std::string* set, bool left, bool right);
// and functions: range, dict, namespace, raise_exception, strftime_now
std::optional<Value> find_function(std::string_view name);
Value call_function(Context& cx, const Value& function, const Call& call);

// The text that the template makes of `variables`.
std::string render(const Program& program, Context& cx,
                   const std::vector<std::pair<std::string, Value>>& variables);

}  // namespace lariat::jinja
