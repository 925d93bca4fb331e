#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja_eval.h"

namespace lariat::jinja {

// Of statements and expressions that are being run, through macros that call each other. Real templates
// reach 40.
inline constexpr int kMaxRunning = 400;

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

// Runs a program: scopes, statements (jinja_interpreter.cpp) and expressions (jinja_evaluate.cpp).
class Interpreter {
 public:
  explicit Interpreter(Context& cx) : cx_(cx) {}

  std::string run(const Program& program, const std::vector<std::pair<std::string, Value>>& variables);

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
  Value lookup(const std::string& name);
  void define(const std::string& name, Value value);
  void assign(const Expression& target, const Value& value);
  // Statements.
  Flow run(const std::vector<Statement>& body);
  Flow run(const Statement& s);
  void emit(std::string_view text);
  void print(const Value& v);
  Flow run_if(const Statement& s);
  // The loop's next value, past those that its condition leaves out.
  std::optional<Value> pull(Loop& loop);
  std::optional<Value>& peek(Loop& loop);
  bool advance(Loop& loop);
  Flow run_for(const Statement& s);
  // What a body prints.
  std::string capture(const std::vector<Statement>& body, Flow* flow);
  Flow run_captured(const Statement& s);
  void define_macro(const Statement& s);
  Flow run_with(const Statement& s);
  // Expressions.
  Value eval(const Expression& e);
  std::vector<Value> eval_all(const std::vector<Expression>& exprs, size_t from);
  Call eval_arguments(const Expression& e, size_t from);
  Value eval_dict(const Expression& e);
  Value eval_item(const Expression& e);
  Value eval_slice(const Expression& e);
  Value eval_logic(const Expression& e);
  Value eval_arithmetic(const Expression& e);
  Value eval_compare(const Expression& e);
  Value eval_conditional(const Expression& e);
  Value attribute_of(const Value& object, const std::string& name);
  Value eval_call(const Expression& e);
  Value call(const Value& function, const Call& arguments);
  Value call_macro(const Macro& macro, const Call& call);
  int64_t length_of(Loop& loop);
  Value loop_attribute(const Value& value, const std::string& name);
  Value call_loop(Loop& loop, const std::string& name, const Call& call);

  Context& cx_;
  std::vector<Frame> frames_;
  size_t frame_ = 0, top_ = 0;
  int depth_ = 0, line_ = 0;
  std::string out_;
  Value body_;  // for kBody
};

}  // namespace lariat::jinja
