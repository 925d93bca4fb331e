#include "models/text/jinja_interpreter.h"

#include <fmt/format.h>

#include <memory>

namespace lariat::jinja {

std::string Interpreter::run(const Program& program,
                             const std::vector<std::pair<std::string, Value>>& variables) {
  frames_.emplace_back();
  for (const auto& [name, value] : variables) frames_[0].variables.emplace_back(&name, value);
  try {
    run(program.body);
  } catch (const Failure& failure) {
    throw Failure(failure.what(), line_);
  }
  return std::move(out_);
}

Value Interpreter::lookup(const std::string& name) {
  for (size_t at = frame_;; at = frames_[at].parent) {
    for (const auto& [known, value] : frames_[at].variables) {
      if (*known == name) return value;
    }
    if (at == 0) break;
  }
  if (auto function = find_function(name)) return *std::move(function);
  return undefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::define(const std::string& name, Value value) {
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

void Interpreter::assign(const Expression& target, const Value& value) {
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
    throw Failure(fmt::format("only attributes of a namespace can be set, not of a '{}'", type_name(space)));
  set_attribute(cx_, space, target.name, value);
}

Flow Interpreter::run(const std::vector<Statement>& body) {
  for (const Statement& s : body) {
    if (const Flow flow = run(s); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Flow Interpreter::run(const Statement& s) {
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

void Interpreter::emit(std::string_view text) {
  cx_.reserve_text(out_.size() + text.size(), text.size());
  out_ += text;
}

void Interpreter::print(const Value& v) {
  if (is_text(v) || v.is(Kind::kMarkup)) {
    emit(text_of(v));
  } else {
    emit(to_text(cx_, v));
  }
}

Flow Interpreter::run_if(const Statement& s) {
  for (size_t i = 0; i < s.exprs.size(); ++i) {
    if (truth(eval(s.exprs[i]))) return run(s.bodies[i]);
  }
  return s.bodies.size() > s.exprs.size() ? run(s.bodies.back()) : Flow::kNext;
}

std::optional<Value> Interpreter::pull(Loop& loop) {
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

std::optional<Value>& Interpreter::peek(Loop& loop) {
  if (!loop.after) loop.after = pull(loop);
  return loop.after;
}

bool Interpreter::advance(Loop& loop) {
  std::optional<Value> value = loop.after ? std::exchange(loop.after, std::nullopt) : pull(loop);
  if (!value) return false;
  loop.before = std::exchange(loop.current, std::move(value));
  ++loop.index0;
  return true;
}

Flow Interpreter::run_for(const Statement& s) {
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

std::string Interpreter::capture(const std::vector<Statement>& body, Flow* flow) {
  std::string outer = std::exchange(out_, "");
  *flow = run(body);
  return std::exchange(out_, std::move(outer));
}

Flow Interpreter::run_captured(const Statement& s) {
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

void Interpreter::define_macro(const Statement& s) {
  Value macro;
  macro.kind = Kind::kMacro;
  macro.object = std::make_shared<Macro>(Macro{&s, frame_});
  define(s.text, std::move(macro));
}

Flow Interpreter::run_with(const Statement& s) {
  std::vector<Value> values;
  for (size_t i = 1; i < s.exprs.size(); i += 2) values.push_back(eval(s.exprs[i]));
  const Scope scope(*this, frame_);
  for (size_t i = 0; i < values.size(); ++i) assign(s.exprs[2 * i], values[i]);
  return run(s.bodies[0]);
}

std::string render(const Program& program, Context& cx,
                   const std::vector<std::pair<std::string, Value>>& variables) {
  return Interpreter(cx).run(program, variables);
}

}  // namespace lariat::jinja
