#include "models/text/jinja_expression.h"

namespace lariat::jinja {

Expression ExpressionParser::expression() {
  const Nesting nesting(*this);
  Expression e = disjunction();
  while (at_name("if")) {
    const int line = next().line;
    std::vector<Expression> args = list(disjunction(), std::move(e));
    if (skip_name("else")) args.push_back(expression());
    e = node(Op::kConditional, line, std::move(args));
  }
  return e;
}

Expression ExpressionParser::disjunction() {
  Expression e = conjunction();
  while (at_name("or")) {
    const int line = next().line;
    e = node(Op::kOr, line, list(std::move(e), conjunction()));
  }
  return e;
}

Expression ExpressionParser::conjunction() {
  Expression e = negation();
  while (at_name("and")) {
    const int line = next().line;
    e = node(Op::kAnd, line, list(std::move(e), negation()));
  }
  return e;
}

Expression ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  const Nesting nesting(*this);
  const int line = next().line;
  return node(Op::kNot, line, list(negation()));
}

std::string ExpressionParser::comparison_operator() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (skip(symbol)) return symbol;
  }
  if (skip_name("in")) return "in";
  if (!at_name("not") || !is(ahead(), Token::Kind::kName, "in")) return "";
  next();
  next();
  return "not in";
}

Expression ExpressionParser::comparison() {
  const int line = now().line;
  std::vector<Expression> args = list(arithmetic(0));
  std::vector<std::string> operators;
  for (std::string op = comparison_operator(); !op.empty(); op = comparison_operator()) {
    operators.push_back(std::move(op));
    args.push_back(arithmetic(0));
  }
  if (operators.empty()) return std::move(args[0]);
  Expression e = node(Op::kCompare, line, std::move(args));
  e.names = std::move(operators);
  return e;
}

Expression ExpressionParser::arithmetic(size_t level) {
  static const std::vector<std::vector<std::string_view>> kLevels = {
      {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
  if (level == kLevels.size()) return unary(true);
  Expression e = arithmetic(level + 1);
  const auto& symbols = kLevels[level];
  while (now().kind == Token::Kind::kSymbol &&
         std::find(symbols.begin(), symbols.end(), now().text) != symbols.end()) {
    const Token& symbol = next();
    const Op kind = symbol.text == "~" ? Op::kConcat : Op::kArithmetic;
    e = node(kind, symbol.line, list(std::move(e), arithmetic(level + 1)), symbol.text);
  }
  return e;
}

Expression ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  Expression e;
  if (at_symbol("-") || at_symbol("+")) {
    const Token& sign = next();
    e = node(sign.text == "-" ? Op::kNegative : Op::kPositive, sign.line, list(unary(false)));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  while (with_filters) {
    if (at_symbol("|")) {
      e = filter(std::move(e));
    } else if (at_name("is")) {
      e = test(std::move(e));
    } else if (at_symbol("(")) {
      e = call(std::move(e));
    } else {
      break;
    }
  }
  return e;
}

Expression ExpressionParser::primary() {
  const Token& token = now();
  if (token.kind == Token::Kind::kName) {
    next();
    for (const char* truth : {"true", "True"}) {
      if (token.text == truth) return constant(boolean(true));
    }
    for (const char* falsehood : {"false", "False"}) {
      if (token.text == falsehood) return constant(boolean(false));
    }
    if (token.text == "none" || token.text == "None") return constant(none());
    return node(Op::kName, token.line, {}, token.text);
  }
  if (token.kind == Token::Kind::kText) {
    std::string text;
    while (now().kind == Token::Kind::kText) text += next().text;
    return constant(constant_text(std::move(text)));
  }
  if (token.kind == Token::Kind::kNumber) return constant(next().value);
  if (skip("(")) {
    Expression e = tuple(true, "", true);
    expect(")");
    return e;
  }
  if (at_symbol("[")) return node(Op::kList, token.line, items("]"));
  if (at_symbol("{")) return node(Op::kDict, token.line, items("}"));
  fail("expected an expression, found " + describe());
}

std::vector<Expression> ExpressionParser::items(std::string_view close) {
  std::vector<Expression> all;
  next();
  while (!at_symbol(close)) {
    if (!all.empty()) expect(",");
    if (at_symbol(close)) break;
    all.push_back(expression());
    if (close != "}") continue;
    expect(":");
    all.push_back(expression());
  }
  expect(close);
  return all;
}

Expression ExpressionParser::tuple(bool with_condition, std::string_view end, bool in_parentheses,
                                   bool target) {
  const int line = now().line;
  std::vector<Expression> all;
  bool is_tuple = false;
  for (;;) {
    if (is_tuple) expect(",");
    const bool closed = now().kind == Token::Kind::kPrintClose || now().kind == Token::Kind::kClose ||
                        at_symbol(")") || (!end.empty() && at_name(end));
    if (closed) break;
    all.push_back(target ? this->target() : with_condition ? expression() : disjunction());
    if (!at_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && all.size() == 1) return std::move(all[0]);
  if (!is_tuple && !in_parentheses) fail("expected an expression, found " + describe());
  return node(Op::kTuple, line, std::move(all));
}

Expression ExpressionParser::postfix(Expression e) {
  for (;;) {
    if (at_symbol(".")) {
      const int line = next().line;
      if (now().kind == Token::Kind::kNumber) {
        e = node(Op::kItem, line, list(std::move(e), constant(next().value)));
      } else {
        e = node(Op::kAttribute, line, list(std::move(e)), name());
      }
    } else if (at_symbol("[")) {
      e = subscript(std::move(e));
    } else if (at_symbol("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

Expression ExpressionParser::subscript(Expression object) {
  const int line = next().line;
  std::vector<Expression> parts = list(std::move(object));
  bool slice = false;
  const auto part = [&] {
    parts.push_back(at_symbol(":") || at_symbol("]") ? constant(none()) : expression());
  };
  if (at_symbol("]")) fail("expected an expression, found ']'");
  part();
  while (parts.size() < 4 && skip(":")) {
    slice = true;
    part();
  }
  expect("]");
  if (!slice) return node(Op::kItem, line, std::move(parts));
  while (parts.size() < 4) parts.push_back(constant(none()));
  return node(Op::kSlice, line, std::move(parts));
}

void ExpressionParser::arguments(std::vector<Expression>& args, std::vector<std::string>& names) {
  expect("(");
  bool first = true;
  while (!at_symbol(")")) {
    if (!first) expect(",");
    if (at_symbol(")")) break;
    first = false;
    if (at_symbol("*") || at_symbol("**")) fail("*arguments and **arguments are not supported");
    if (now().kind == Token::Kind::kName && is(ahead(), Token::Kind::kSymbol, "=")) {
      names.push_back(name());
      next();
    } else if (!names.empty()) {
      fail("an argument without a name behind one with a name");
    }
    args.push_back(expression());
  }
  expect(")");
}

Expression ExpressionParser::call(Expression callee) {
  const int line = now().line;
  std::vector<Expression> args = list(std::move(callee));
  std::vector<std::string> names;
  arguments(args, names);
  Expression e = node(Op::kCall, line, std::move(args));
  e.names = std::move(names);
  return e;
}

Expression ExpressionParser::filter(Expression input) {
  next();
  return filter_named(std::move(input));
}

Expression ExpressionParser::filter_named(Expression input) {
  const int line = now().line;
  const std::string filter_name = name();
  std::vector<Expression> args = list(std::move(input));
  std::vector<std::string> names;
  if (at_symbol("(")) arguments(args, names);
  Expression e = node(Op::kFilter, line, std::move(args), filter_name);
  e.names = std::move(names);
  return e;
}

Expression ExpressionParser::test(Expression input) {
  const int line = next().line;
  const bool negated = skip_name("not");
  const std::string test_name = name();
  std::vector<Expression> args = list(std::move(input));
  std::vector<std::string> names;
  const Token& token = now();
  const bool opens =
      token.kind == Token::Kind::kText || token.kind == Token::Kind::kNumber || at_symbol("[") ||
      at_symbol("{") ||
      (token.kind == Token::Kind::kName && token.text != "else" && token.text != "or" && token.text != "and");
  if (at_symbol("(")) {
    arguments(args, names);
  } else if (opens) {
    if (at_name("is")) fail("tests with 'is' cannot follow each other");
    args.push_back(postfix(primary()));
  }
  Expression e = node(Op::kTest, line, std::move(args), test_name);
  e.names = std::move(names);
  return negated ? node(Op::kNot, line, list(std::move(e))) : std::move(e);
}

Expression ExpressionParser::target() {
  const Nesting nesting(*this);
  if (skip("(")) {
    Expression e = tuple(false, "", true, true);
    expect(")");
    return e;
  }
  const int line = now().line;
  const std::string variable = name();
  for (const char* reserved : {"true", "True", "false", "False", "none", "None"}) {
    if (variable == reserved) fail(fmt::format("'{}' cannot be assigned to", variable));
  }
  Expression e = node(Op::kName, line, {}, variable);
  return skip(".") ? node(Op::kAttribute, line, list(std::move(e)), name()) : std::move(e);
}

Expression ExpressionParser::filters(Expression e) {
  while (at_symbol("|")) e = filter(std::move(e));
  return e;
}

}  // namespace lariat::jinja
