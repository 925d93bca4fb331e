#include <fmt/format.h>

#include <algorithm>

#include "models/text/jinja_interpreter.h"

namespace lariat::jinja {

Value Interpreter::eval(const Expression& e) {
  const Running running(*this);
  line_ = e.line;
  using Op = Expression::Kind;
  switch (e.kind) {
    case Op::kConstant:
      return e.value;
    case Op::kName:
      return lookup(e.name);
    case Op::kList:
      return make_sequence(cx_, Kind::kList, eval_all(e.args, 0));
    case Op::kTuple:
      return make_sequence(cx_, Kind::kTuple, eval_all(e.args, 0));
    case Op::kDict:
      return eval_dict(e);
    case Op::kAttribute:
      return attribute_of(eval(e.args[0]), e.name);
    case Op::kItem:
      return eval_item(e);
    case Op::kSlice:
      return eval_slice(e);
    case Op::kCall:
      return eval_call(e);
    case Op::kFilter:
      return apply_filter(cx_, e.name, eval_arguments(e, 0));
    case Op::kTest:
      return boolean(apply_test(cx_, e.name, eval_arguments(e, 0)));
    case Op::kNegative:
      return negative(eval(e.args[0]));
    case Op::kPositive:
      return negative(negative(eval(e.args[0])));
    case Op::kNot:
      return boolean(!truth(eval(e.args[0])));
    case Op::kAnd:
    case Op::kOr:
      return eval_logic(e);
    case Op::kArithmetic:
    case Op::kConcat:
      return eval_arithmetic(e);
    case Op::kCompare:
      return eval_compare(e);
    case Op::kConditional:
      return eval_conditional(e);
    case Op::kBody:
      return std::exchange(body_, Value());
  }
  return {};
}

std::vector<Value> Interpreter::eval_all(const std::vector<Expression>& exprs, size_t from) {
  std::vector<Value> values;
  values.reserve(exprs.size() - from);
  for (size_t i = from; i < exprs.size(); ++i) values.push_back(eval(exprs[i]));
  return values;
}

Call Interpreter::eval_arguments(const Expression& e, size_t from) {
  Call call{eval_all(e.args, from), e.names};
  line_ = e.line;
  return call;
}

Value Interpreter::eval_dict(const Expression& e) {
  Value dict = make_dict(cx_);
  for (size_t i = 0; i + 1 < e.args.size(); i += 2) {
    const Value key = eval(e.args[i]);
    put(cx_, dict.as<Dict>(), key, eval(e.args[i + 1]));
  }
  return dict;
}

Value Interpreter::eval_item(const Expression& e) {
  const Value object = eval(e.args[0]), key = eval(e.args[1]);
  return object.is(Kind::kLoop) && is_text(key) ? loop_attribute(object, text_of(key))
                                                : item(cx_, object, key);
}

Value Interpreter::eval_slice(const Expression& e) {
  const Value object = eval(e.args[0]), start = eval(e.args[1]), stop = eval(e.args[2]);
  return slice(cx_, object, start, stop, eval(e.args[3]));
}

Value Interpreter::eval_logic(const Expression& e) {
  Value first = eval(e.args[0]);
  return truth(first) == (e.kind == Expression::Kind::kOr) ? first : eval(e.args[1]);
}

Value Interpreter::eval_arithmetic(const Expression& e) {
  Value a = eval(e.args[0]);
  const Value b = eval(e.args[1]);
  line_ = e.line;
  if (e.kind == Expression::Kind::kArithmetic) return arithmetic(cx_, e.name, std::move(a), b);
  if (!is_text(a)) a = make_text(cx_, to_text(cx_, a));
  return arithmetic(cx_, "+", std::move(a), is_text(b) ? b : make_text(cx_, to_text(cx_, b)));
}

Value Interpreter::eval_compare(const Expression& e) {
  Value left = eval(e.args[0]);
  for (size_t i = 0; i < e.names.size(); ++i) {
    Value right = eval(e.args[i + 1]);
    line_ = e.line;
    if (!compare(cx_, e.names[i], left, right)) return boolean(false);
    left = std::move(right);
  }
  return boolean(true);
}

Value Interpreter::eval_conditional(const Expression& e) {
  if (truth(eval(e.args[0]))) return eval(e.args[1]);
  if (e.args.size() > 2) return eval(e.args[2]);
  return undefined("the inline if-expression is false and has no else");
}

Value Interpreter::attribute_of(const Value& object, const std::string& name) {
  return object.is(Kind::kLoop) ? loop_attribute(object, name) : attribute(cx_, object, name);
}

Value Interpreter::eval_call(const Expression& e) {
  const Expression& callee = e.args[0];
  if (callee.kind != Expression::Kind::kAttribute) {
    const Value function = eval(callee);
    return call(function, eval_arguments(e, 1));
  }
  const Value self = eval(callee.args[0]);
  if (self.is(Kind::kLoop)) return call_loop(self.as<Loop>(), callee.name, eval_arguments(e, 1));
  if (has_method(self, callee.name) && !changes_its_object(self, callee.name))
    return call_method(cx_, self, callee.name, eval_arguments(e, 1));
  const Value function = attribute(cx_, self, callee.name);
  return call(function, eval_arguments(e, 1));
}

Value Interpreter::call(const Value& function, const Call& arguments) {
  switch (function.kind) {
    case Kind::kFunction:
      return call_function(cx_, function, arguments);
    case Kind::kMacro:
      return call_macro(function.as<Macro>(), arguments);
    case Kind::kMethod: {
      const auto& method = function.as<Method>();
      return call_method(cx_, method.self, method.name, arguments);
    }
    case Kind::kUndefined:
      fail_undefined(function);
    default:
      throw Failure(fmt::format("a '{}' cannot be called", type_name(function)));
  }
}

Value Interpreter::call_macro(const Macro& macro, const Call& call) {
  const Running running(*this);
  const Statement& s = *macro.definition;
  const size_t by_place = call.args.size() - call.names.size();
  if (by_place > s.names.size())
    throw Failure(fmt::format("macro '{}' takes not more than {} arguments", s.text, s.names.size()));
  for (const std::string& name : call.names) {
    const auto at = std::find(s.names.begin(), s.names.end(), name);
    if (at == s.names.end() || static_cast<size_t>(at - s.names.begin()) < by_place)
      throw Failure(fmt::format("macro '{}' takes no keyword argument '{}'", s.text, name));
  }
  const int line = line_;
  const Scope scope(*this, macro.frame);
  const size_t without_default = s.names.size() - s.exprs.size();
  for (size_t i = 0; i < s.names.size(); ++i) {
    const auto named = std::find(call.names.begin(), call.names.end(), s.names[i]);
    if (i < by_place) {
      define(s.names[i], call.args[i]);
    } else if (named != call.names.end()) {
      define(s.names[i], call.args[by_place + static_cast<size_t>(named - call.names.begin())]);
    } else if (i >= without_default) {
      define(s.names[i], eval(s.exprs[i - without_default]));
    } else {
      define(s.names[i], undefined(fmt::format("parameter '{}' was not provided", s.names[i])));
    }
  }
  Flow flow = Flow::kNext;
  Value text = make_text(cx_, capture(s.bodies[0], &flow));
  line_ = line;
  return text;
}

int64_t Interpreter::length_of(Loop& loop) {
  if (loop.known_length >= 0) return loop.known_length;
  if (loop.filtered) {
    std::vector<Value> rest;
    while (auto value = pull(loop)) rest.push_back(*std::move(value));
    loop.source = make_sequence(cx_, Kind::kList, std::move(rest));
    loop.taken = 0;
    loop.filtered = false;
    loop.known_length = length(cx_, loop.source) + loop.index0 + 1 + (loop.after ? 1 : 0);
  } else {
    loop.known_length = length(cx_, loop.source);
  }
  return loop.known_length;
}

Value Interpreter::loop_attribute(const Value& value, const std::string& name) {
  auto& loop = value.as<Loop>();
  if (name == "index0") return integer(loop.index0);
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "first") return boolean(loop.index0 == 0);
  if (name == "last") return boolean(!peek(loop));
  if (name == "length") return integer(length_of(loop));
  if (name == "revindex") return integer(length_of(loop) - loop.index0);
  if (name == "revindex0") return integer(length_of(loop) - loop.index0 - 1);
  if (name == "previtem") return loop.before ? *loop.before : undefined("there is no previous item");
  if (name == "nextitem") return peek(loop) ? *peek(loop) : undefined("there is no next item");
  throw Failure(
      fmt::format("unknown 'loop.{:.40}'; lariat knows index, index0, revindex, revindex0, first, last, "
                  "length, previtem, nextitem, cycle() and changed()",
                  name));
}

Value Interpreter::call_loop(Loop& loop, const std::string& name, const Call& call) {
  if (!call.names.empty()) throw Failure(fmt::format("loop.{:.40} takes no keyword arguments", name));
  if (name == "cycle") {
    if (call.args.empty()) throw Failure("loop.cycle needs an argument");
    return call.args[static_cast<size_t>(loop.index0) % call.args.size()];
  }
  if (name != "changed") throw Failure(fmt::format("'loop.{:.40}' cannot be called", name));
  Value now = make_sequence(cx_, Kind::kTuple, call.args);
  if (!is_plain(now)) throw Failure("loop.changed takes plain values only");
  const bool changed = !loop.last_changed || !equal(cx_, *loop.last_changed, now);
  loop.last_changed = std::move(now);
  return boolean(changed);
}

}  // namespace lariat::jinja
