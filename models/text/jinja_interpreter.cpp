#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/text/jinja_eval.h"

namespace lariat::jinja {
namespace {

// Of statements and expressions that are being run, through macros that call each other. Real templates
// reach 40.
constexpr int kMaxRunning = 400;

struct Macro {
  const Statement* definition;
  size_t frame;  // where it was defined; it does not leave that frame (is_plain)
};

struct Loop {
  Value source;  // a sequence
  const Statement* statement;
  size_t outer;   // the frame around the loop
  bool filtered;  // by the statement's condition, which is asked as late as it can be
  size_t taken = 0;
  int64_t known_length = -1;
  int64_t index0 = -1;
  std::optional<Value> current, before, after;  // after: looked at already
  std::optional<Value> last_changed;
};

// Names with their values, seen from inside as well.
struct Frame {
  std::vector<std::pair<const std::string*, Value>> variables;
  size_t parent = 0;
};

enum class Flow { kNext, kBreak, kContinue };

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

  struct Running {
    explicit Running(Interpreter& run) : depth(run.depth_) {
      run.cx_.step();
      if (++depth > kMaxRunning) {
        --depth;
        throw Failure("macros or expressions nested too deeply; is a macro calling itself?");
      }
    }
    ~Running() { --depth; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    int& depth;
  };

  // Variables.
  Value lookup(const std::string& name) {
    for (size_t at = frame_;; at = frames_[at].parent) {
      for (const auto& [known, value] : frames_[at].variables) {
        if (*known == name) return value;
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
        throw Failure(fmt::format("{} values for {} names", items_of(values).size(), target.args.size()));
      for (size_t i = 0; i < target.args.size(); ++i) assign(target.args[i], items_of(values)[i]);
      return;
    }
    const Value space = eval(target.args[0]);
    if (!space.is(Kind::kNamespace))
      throw Failure(
          fmt::format("only attributes of a namespace can be set, not of a '{}'", type_name(space)));
    set_attribute(cx_, space, target.name, value);
  }

  // Statements.
  Flow run(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      if (const Flow flow = run(s); flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run(const Statement& s) {
    const Running running(*this);
    line_ = s.line;
    switch (s.kind) {
      case Statement::Kind::kText:
        emit(s.text);
        break;
      case Statement::Kind::kPrint:
        print(eval(s.exprs[0]));
        break;
      case Statement::Kind::kIf:
        return run_if(s);
      case Statement::Kind::kFor:
        return run_for(s);
      case Statement::Kind::kSet:
        assign(s.exprs[0], eval(s.exprs[1]));
        break;
      case Statement::Kind::kSetBlock:
      case Statement::Kind::kFilter:
        return run_captured(s);
      case Statement::Kind::kMacro:
        define_macro(s);
        break;
      case Statement::Kind::kWith:
        return run_with(s);
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
  void print(const Value& v) {
    if (is_text(v) || v.is(Kind::kMarkup)) {
      emit(text_of(v));
    } else {
      emit(to_text(cx_, v));
    }
  }

  Flow run_if(const Statement& s) {
    for (size_t i = 0; i < s.exprs.size(); ++i) {
      if (truth(eval(s.exprs[i]))) return run(s.bodies[i]);
    }
    return s.bodies.size() > s.exprs.size() ? run(s.bodies.back()) : Flow::kNext;
  }

  // The loop's next value, past those that its condition leaves out.
  std::optional<Value> pull(Loop& loop) {
    const auto& items = items_of(loop.source);
    while (loop.taken < items.size()) {
      const Value& value = items[loop.taken++];
      cx_.step();
      if (!loop.filtered) return value;
      const Scope scope(*this, loop.outer);
      assign(loop.statement->exprs[0], value);
      if (truth(eval(loop.statement->exprs[2]))) return value;
    }
    return std::nullopt;
  }
  std::optional<Value>& peek(Loop& loop) {
    if (!loop.after) loop.after = pull(loop);
    return loop.after;
  }
  bool advance(Loop& loop) {
    std::optional<Value> value = loop.after ? std::exchange(loop.after, std::nullopt) : pull(loop);
    if (!value) return false;
    loop.before = std::exchange(loop.current, std::move(value));
    ++loop.index0;
    return true;
  }

  Flow run_for(const Statement& s) {
    static const std::string kLoop = "loop";
    auto loop = std::make_shared<Loop>();
    loop->source = to_sequence(cx_, eval(s.exprs[1]));
    loop->statement = &s;
    loop->outer = frame_;
    loop->filtered = s.exprs.size() > 2;
    Value loop_value;
    loop_value.kind = Kind::kLoop;
    loop_value.object = loop;
    while (advance(*loop)) {
      const Scope scope(*this, loop->outer);
      define(kLoop, loop_value);
      assign(s.exprs[0], *loop->current);
      if (run(s.bodies[0]) == Flow::kBreak) return Flow::kNext;
    }
    if (loop->index0 >= 0 || s.bodies.size() < 2) return Flow::kNext;
    const Scope scope(*this, frame_);
    return run(s.bodies[1]);
  }

  // What a body prints.
  std::string capture(const std::vector<Statement>& body, Flow* flow) {
    std::string outer = std::exchange(out_, "");
    *flow = run(body);
    return std::exchange(out_, std::move(outer));
  }

  Flow run_captured(const Statement& s) {
    Flow flow = Flow::kNext;
    {
      const Scope scope(*this, frame_);
      std::string text = capture(s.bodies[0], &flow);
      body_ = make_text(cx_, std::move(text));
    }
    if (flow != Flow::kNext) return flow;
    const Value value = eval(s.exprs.back());
    if (s.kind == Statement::Kind::kFilter) {
      print(value);
    } else {
      assign(s.exprs[0], value);
    }
    return flow;
  }

  void define_macro(const Statement& s) {
    Value macro;
    macro.kind = Kind::kMacro;
    macro.object = std::make_shared<Macro>(Macro{&s, frame_});
    define(s.text, std::move(macro));
  }

  Flow run_with(const Statement& s) {
    std::vector<Value> values;
    for (size_t i = 1; i < s.exprs.size(); i += 2) values.push_back(eval(s.exprs[i]));
    const Scope scope(*this, frame_);
    for (size_t i = 0; i < values.size(); ++i) assign(s.exprs[2 * i], values[i]);
    return run(s.bodies[0]);
  }

  // Expressions.
  Value eval(const Expression& e) {
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

  Value eval_item(const Expression& e) {
    const Value object = eval(e.args[0]), key = eval(e.args[1]);
    return object.is(Kind::kLoop) && is_text(key) ? loop_attribute(object, text_of(key))
                                                  : item(cx_, object, key);
  }

  Value eval_slice(const Expression& e) {
    const Value object = eval(e.args[0]), start = eval(e.args[1]), stop = eval(e.args[2]);
    return slice(cx_, object, start, stop, eval(e.args[3]));
  }

  Value eval_logic(const Expression& e) {
    Value first = eval(e.args[0]);
    return truth(first) == (e.kind == Expression::Kind::kOr) ? first : eval(e.args[1]);
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

  Value eval_conditional(const Expression& e) {
    if (truth(eval(e.args[0]))) return eval(e.args[1]);
    if (e.args.size() > 2) return eval(e.args[2]);
    return undefined("the inline if-expression is false and has no else");
  }

  Value attribute_of(const Value& object, const std::string& name) {
    return object.is(Kind::kLoop) ? loop_attribute(object, name) : attribute(cx_, object, name);
  }

  Value eval_call(const Expression& e) {
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

  Value call(const Value& function, const Call& arguments) {
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

  Value call_macro(const Macro& macro, const Call& call) {
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

  int64_t length_of(Loop& loop) {
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

  Value loop_attribute(const Value& value, const std::string& name) {
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

  Value call_loop(Loop& loop, const std::string& name, const Call& call) {
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

  Context& cx_;
  std::vector<Frame> frames_;
  size_t frame_ = 0, top_ = 0;
  int depth_ = 0, line_ = 0;
  std::string out_;
  Value body_;  // for kBody
};

}  // namespace

std::string render(const Program& program, Context& cx,
                   const std::vector<std::pair<std::string, Value>>& variables) {
  return Interpreter(cx).run(program, variables);
}

}  // namespace lariat::jinja
