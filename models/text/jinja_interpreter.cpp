#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "models/text/jinja_eval.h"

namespace lariat::jinja {
namespace {

// How many statements and expressions may be running inside each other, through macros that call each other.
// Real templates reach 40.
constexpr int kMaxRunning = 400;

struct Macro {
  const Statement* definition;
  size_t frame;  // where it was defined; it does not leave that frame (is_plain)
};

struct Loop {
  std::vector<Value> items;
  size_t at = 0;
};

// Names with their values, seen from inside as well.
struct Frame {
  std::vector<std::pair<const std::string*, Value>> variables;
  size_t parent = 0;
};

enum class Flow { kNext, kBreak, kContinue };

// Runs a program: scopes, statements and expressions.
class Interpreter {
 public:
  explicit Interpreter(Context& cx) : cx_(cx) {}

  std::string run(const Program& program, const std::vector<std::pair<std::string, Value>>& variables) {
    frames_.emplace_back();
    for (const auto& [name, value] : variables) frames_[0].variables.emplace_back(&name, value);
    try {
      run(program.body);
    } catch (const Failure& failure) {
      throw Failure(failure.what(), line_);
    }
    return std::move(out_);
  }

 private:
  // A frame for a body: below `parent`, and gone at its end.
  class Scope {
   public:
    Scope(Interpreter& run, size_t parent) : run_(run), outer_(run.frame_) {
      run.frame_ = ++run.top_;
      if (run.frames_.size() <= run.top_) run.frames_.emplace_back();
      run.frames_[run.top_].parent = parent;
    }
    ~Scope() {
      run_.frames_[run_.top_--].variables.clear();
      run_.frame_ = outer_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interpreter& run_;
    size_t outer_;
  };

  Depth step_into() {
    static const std::string kWhat = "macros or expressions nested too deeply; is a macro calling itself?";
    cx_.step();
    return Depth(depth_, kMaxRunning, kWhat);
  }

  Value lookup(const std::string& name) const {
    for (size_t at = frame_;; at = frames_[at].parent) {
      for (const auto& [known, value] : frames_[at].variables) {
        if (*known != name) continue;
        if (in_condition_ && value.is(Kind::kNamespace))
          throw Failure("the condition of a {% for %} with a namespace is not supported");
        return value;
      }
      if (at == 0) break;
    }
    if (auto function = find_function(name)) return *std::move(function);
    return undefined(fmt::format("'{}' is undefined", name));
  }

  void define(const std::string& name, Value value) {
    auto& variables = frames_[frame_].variables;
    for (auto& [known, old] : variables) {
      if (*known == name) {
        old = std::move(value);
        return;
      }
    }
    cx_.step(variables.size() / 16);
    variables.emplace_back(&name, std::move(value));
  }

  void assign(const Expression& target, const Value& value) {
    if (target.kind == Expression::Kind::kName) return define(target.name, value);
    if (target.kind == Expression::Kind::kTuple) {
      const Value values = to_sequence(cx_, value);
      if (items_of(values).size() != target.args.size())
        throw Failure(fmt::format("{} names; values: {}", target.args.size(), items_of(values).size()));
      for (size_t i = 0; i < target.args.size(); ++i) assign(target.args[i], items_of(values)[i]);
      return;
    }
    const Value space = eval(target.args[0]);
    if (!space.is(Kind::kNamespace))
      throw Failure(
          fmt::format("only attributes of a namespace can be set, not of a '{}'", type_name(space)));
    set_attribute(cx_, space, target.name, value);
  }

  Flow run(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      if (const Flow flow = run(s); flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run(const Statement& s) {
    const Depth running = step_into();
    line_ = s.line;
    switch (s.kind) {
      case Statement::Kind::kText:
        emit(s.text);
        break;
      case Statement::Kind::kPrint:
        emit(to_text(cx_, eval(s.exprs[0])));
        break;
      case Statement::Kind::kIf:
        return run_if(s);
      case Statement::Kind::kFor:
        return run_for(s);
      case Statement::Kind::kSet:
        return run_set(s);
      case Statement::Kind::kMacro: {
        auto macro = std::make_shared<Macro>(Macro{&s, frame_});
        define(s.text, {.kind = Kind::kMacro, .integer = 0, .object = std::move(macro)});
        break;
      }
      case Statement::Kind::kGeneration: {
        const Scope scope(*this, frame_);
        return run(s.bodies[0]);
      }
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  void emit(std::string_view text) {
    cx_.reserve_text(out_.size() + text.size(), text.size());
    out_ += text;
  }

  Flow run_if(const Statement& s) {
    for (size_t i = 0; i < s.exprs.size(); ++i) {
      if (truth(eval(s.exprs[i]))) return run(s.bodies[i]);
    }
    return s.bodies.size() > s.exprs.size() ? run(s.bodies.back()) : Flow::kNext;
  }

  // The items that a loop goes through. Jinja asks the loop's condition as late as it can; here it is asked
  // at once, so it may not see what the loop's body changes, which is only a namespace.
  std::vector<Value> loop_items(const Statement& s) {
    const Value source = to_sequence(cx_, eval(s.exprs[1]));
    if (s.exprs.size() < 3) return items_of(source);
    std::vector<Value> kept;
    const bool outer = std::exchange(in_condition_, true);
    for (const Value& value : items_of(source)) {
      const Scope scope(*this, frame_);
      assign(s.exprs[0], value);
      if (truth(eval(s.exprs[2]))) kept.push_back(value);
    }
    in_condition_ = outer;
    return kept;
  }

  Flow run_for(const Statement& s) {
    static const std::string kLoop = "loop";
    auto loop = std::make_shared<Loop>();
    loop->items = loop_items(s);
    cx_.charge(loop->items.size() * sizeof(Value));
    const Value loop_value = {.kind = Kind::kLoop, .integer = 0, .object = loop};
    for (; loop->at < loop->items.size(); ++loop->at) {
      cx_.step();
      const Scope scope(*this, frame_);
      define(kLoop, loop_value);
      assign(s.exprs[0], loop->items[loop->at]);
      if (run(s.bodies[0]) == Flow::kBreak) return Flow::kNext;
    }
    if (!loop->items.empty() || s.bodies.size() < 2) return Flow::kNext;
    const Scope scope(*this, frame_);
    return run(s.bodies[1]);
  }

  // Runs a body and returns what it prints.
  std::string capture(const std::vector<Statement>& body, Flow* flow) {
    std::string outer = std::exchange(out_, "");
    *flow = run(body);
    return std::exchange(out_, std::move(outer));
  }

  Flow run_set(const Statement& s) {
    if (s.bodies.empty()) {
      assign(s.exprs[0], eval(s.exprs[1]));
      return Flow::kNext;
    }
    Flow flow = Flow::kNext;
    std::string text;
    {
      const Scope scope(*this, frame_);
      text = capture(s.bodies[0], &flow);
    }
    if (flow == Flow::kNext) assign(s.exprs[0], make_text(cx_, std::move(text)));
    return flow;
  }

  Value eval(const Expression& e) {
    const Depth running = step_into();
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
      case Op::kItem: {
        const Value object = eval(e.args[0]);
        return item(cx_, object, eval(e.args[1]));
      }
      case Op::kSlice: {
        const std::vector<Value> parts = eval_all(e.args, 0);
        return slice(cx_, parts[0], parts[1], parts[2], parts[3]);
      }
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
      case Op::kOr: {
        Value first = eval(e.args[0]);
        return truth(first) == (e.kind == Op::kOr) ? first : eval(e.args[1]);
      }
      case Op::kArithmetic:
      case Op::kConcat:
        return eval_arithmetic(e);
      case Op::kCompare:
        return eval_compare(e);
      case Op::kConditional:
        if (truth(eval(e.args[0]))) return eval(e.args[1]);
        return e.args.size() > 2 ? eval(e.args[2])
                                 : undefined("the inline if-expression is false and has no else");
    }
    return {};
  }

  std::vector<Value> eval_all(const std::vector<Expression>& exprs, size_t from) {
    std::vector<Value> values;
    values.reserve(exprs.size() - from);
    for (size_t i = from; i < exprs.size(); ++i) values.push_back(eval(exprs[i]));
    return values;
  }

  Call eval_arguments(const Expression& e, size_t from) {
    Call call{eval_all(e.args, from), e.names};
    line_ = e.line;
    return call;
  }

  Value eval_dict(const Expression& e) {
    Value dict = make_dict(cx_);
    for (size_t i = 0; i + 1 < e.args.size(); i += 2) {
      const Value key = eval(e.args[i]);
      put(cx_, dict.as<Dict>(), key, eval(e.args[i + 1]));
    }
    return dict;
  }

  Value attribute_of(const Value& object, const std::string& name) const {
    if (object.is(Kind::kLoop)) return loop_attribute(object.as<Loop>(), name);
    return attribute(cx_, object, name);
  }

  Value eval_arithmetic(const Expression& e) {
    Value a = eval(e.args[0]);
    const Value b = eval(e.args[1]);
    line_ = e.line;
    if (e.kind == Expression::Kind::kArithmetic) return arithmetic(cx_, e.name, std::move(a), b);
    if (!is_text(a)) a = make_text(cx_, to_text(cx_, a));
    return arithmetic(cx_, "+", std::move(a), is_text(b) ? b : make_text(cx_, to_text(cx_, b)));
  }

  Value eval_compare(const Expression& e) {
    Value left = eval(e.args[0]);
    for (size_t i = 0; i < e.names.size(); ++i) {
      Value right = eval(e.args[i + 1]);
      line_ = e.line;
      if (!compare(cx_, e.names[i], left, right)) return boolean(false);
      left = std::move(right);
    }
    return boolean(true);
  }

  Value eval_call(const Expression& e) {
    const Expression& callee = e.args[0];
    Value function;
    if (callee.kind == Expression::Kind::kAttribute) {
      const Value self = eval(callee.args[0]);
      if (has_method(self, callee.name)) return call_method(cx_, self, callee.name, eval_arguments(e, 1));
      function = attribute_of(self, callee.name);
    } else {
      function = eval(callee);
    }
    const Call arguments = eval_arguments(e, 1);
    if (function.is(Kind::kFunction)) return call_function(cx_, function, arguments);
    if (function.is(Kind::kMacro)) return call_macro(function.as<Macro>(), arguments);
    if (function.is(Kind::kUndefined)) fail_undefined(function);
    throw Failure(fmt::format("a '{}' cannot be called", type_name(function)));
  }

  Value call_macro(const Macro& macro, const Call& call) {
    const Depth running = step_into();
    const Statement& s = *macro.definition;
    const std::vector<std::string_view> names(s.names.begin(), s.names.end());
    const std::vector<const Value*> bound = bind_arguments(call, fmt::format("macro '{}'", s.text), names);
    const int line = line_;
    const Scope scope(*this, macro.frame);
    const size_t without_default = s.names.size() - s.exprs.size();
    for (size_t i = 0; i < s.names.size(); ++i) {
      if (bound[i]) {
        define(s.names[i], *bound[i]);
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

  static Value loop_attribute(const Loop& loop, const std::string& name) {
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

  Context& cx_;
  std::vector<Frame> frames_;
  size_t frame_ = 0, top_ = 0;
  int depth_ = 0, line_ = 0;
  bool in_condition_ = false;  // of a loop
  std::string out_;
};

}  // namespace

std::string render(const Program& program, Context& cx,
                   const std::vector<std::pair<std::string, Value>>& variables) {
  return Interpreter(cx).run(program, variables);
}

}  // namespace lariat::jinja
