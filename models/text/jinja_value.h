#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Values of a chat template: Python's, as far as templates can tell.
namespace lariat::jinja {

// line 0: unknown; render() adds the line.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& what, int at_line = 0) : std::runtime_error(what), line(at_line) {}
  int line;
};

class Context;  // jinja_context.h

enum class Kind : uint8_t {
  kUndefined,  // Jinja's: prints as "", has no attributes; its Text names the missing value
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kList,
  kTuple,
  kView,      // a range, or keys(), values() and items() of a dict: can be iterated
  kIterator,  // result of map, select, ...: can be iterated once
  kDict,
  kNamespace,
  kMacro,
  kLoop,
  kFunction,  // of the environment: range, namespace, ...
};

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    int64_t integer = 0;
    bool boolean;
    double real;
  };
  std::shared_ptr<void> object = {};  // Text, Sequence, Dict, Loop or, for kMacro and kFunction, Function

  template <class T>
  T& as() const {
    return *static_cast<T*>(object.get());
  }
  bool is(Kind other) const { return kind == other; }
};

using Text = std::string;

struct Sequence {
  std::vector<Value> items;
  bool taken = false;
  int depth = 1;  // of nested containers, itself included
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;  // linear lookup counts as steps
  int depth = 1;
};

struct Loop {
  std::vector<Value> items;
  size_t at = 0;
};

struct Call {
  std::vector<Value> args;
  std::vector<std::string> names;  // of the last args
  size_t by_place() const { return args.size() - names.size(); }
};
using Function = std::function<Value(Context&, const Call&)>;

template <class T>
Value with_object(Kind kind, T object) {
  return {.kind = kind, .integer = 0, .object = std::make_shared<T>(std::move(object))};
}

Value none();
Value boolean(bool b);
Value integer(int64_t i);
Value real(double d);
Value undefined(std::string what);
Value constant_text(std::string text);  // not counted: part of the template
Value make_text(Context& cx, std::string text);
Value make_sequence(Context& cx, Kind kind, std::vector<Value> items);
Value make_dict(Context& cx, std::vector<std::pair<Value, Value>> members = {});
Value from_json(Context& cx, const nlohmann::ordered_json& json);

inline bool is_text(const Value& v) { return v.kind == Kind::kText; }
inline const std::string& text_of(const Value& v) { return v.as<Text>(); }
bool is_sequence(const Value& v);
inline const std::vector<Value>& items_of(const Value& v) { return v.as<Sequence>().items; }
bool is_number(const Value& v);    // bool, int, float
bool is_integral(const Value& v);  // bool, int
int64_t integral(const Value& v);
double to_double(const Value& v);
// Lossless on x86-64 and AArch64: long double holds every int64 and every double.
long double exact(const Value& v);
// True if the value neither refers to a scope nor can change. Containers hold only such values: no value can
// hold itself, and no macro outlives its scope.
bool is_plain(const Value& v);

const char* type_name(const Value& v);  // as in Python's errors
bool truth(const Value& v);
std::string to_text(Context& cx, const Value& v);  // Python's str()
// json.dumps with ensure_ascii=False; `indent` below 0: on one line.
std::string to_json(Context& cx, const Value& v, int64_t indent);
bool equal(Context& cx, const Value& a, const Value& b);  // Python's ==
int64_t length(Context& cx, const Value& v);
// Throws Failure for a value that is not iterable, or an iterator used twice.
Value to_sequence(Context& cx, const Value& v);

Value* find(Context& cx, const Dict& dict, const Value& key);
Value* find(Context& cx, const Dict& dict, std::string_view key);
void put(Context& cx, Dict& dict, const Value& key, const Value& value);

[[noreturn]] void fail_undefined(const Value& v);

// Indices count code points. All strings are valid UTF-8.
std::vector<std::string_view> chars(std::string_view text);
size_t find_in(std::string_view text, std::string_view part, size_t from = 0);  // linear; npos
// Removes whitespace if `set` is null, else the characters in `set`.
std::string_view strip(std::string_view text, const std::string* set, bool left, bool right);

}  // namespace lariat::jinja
