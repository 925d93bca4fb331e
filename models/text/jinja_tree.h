#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja_context.h"

// Functions throw Failure with the line, counted from 1.
namespace lariat::jinja {

struct Token {
  enum class Kind { kData, kOpen, kClose, kPrintOpen, kPrintClose, kName, kText, kNumber, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;  // kData, kName, kText (its value) and kSymbol
  Value value;       // kNumber
};

// Applies trim_blocks and lstrip_blocks, as transformers; drops comments.
std::vector<Token> tokenize(std::string_view source);

struct Expression {
  std::function<Value(Context&, const std::vector<Expression>& parts)> eval;
  std::vector<Expression> parts;
  int line = 0, depth = 1;

  Value operator()(Context& cx) const {
    const Depth running = cx.enter();
    cx.line = line;
    return eval(cx, parts);
  }
};

enum class Flow { kNext, kBreak, kContinue };

struct Statement {
  std::function<Flow(Context&)> run;
  int line = 0;

  Flow operator()(Context& cx) const {
    const Depth running = cx.enter();
    cx.line = line;
    return run(cx);
  }
};

struct Program {
  std::vector<Statement> statements;

  Flow operator()(Context& cx) const {
    for (const Statement& statement : statements) {
      if (const Flow flow = statement(cx); flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }
};

Program parse(std::string_view source);

std::string render(const Program& program, Context& cx,
                   const std::vector<std::pair<std::string, Value>>& variables);

}  // namespace lariat::jinja
