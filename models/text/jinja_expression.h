#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja_syntax.h"

namespace lariat::jinja {

// How deep brackets and blocks may nest: parser and interpreter call themselves. Real templates need some 12.
inline constexpr int kMaxNesting = 120;
// The deepest tree of an expression: a + b + c + ... is as deep as it is long.
inline constexpr int kMaxTreeDepth = 200;

// The part of the parser that reads expressions: Jinja's grammar, level by level.
class ExpressionParser {
 protected:
  using Op = Expression::Kind;
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Depth nest() {
    static const std::string kWhat = fmt::format("nested deeper than {} levels", kMaxNesting);
    return Depth(depth_, kMaxNesting, kWhat, now().line);
  }

  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[noreturn]] void fail(const std::string& what) const { throw Failure(what, now().line); }
  static bool is(const Token& token, Token::Kind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool at_symbol(std::string_view text) const { return is(now(), Token::Kind::kSymbol, text); }
  bool at_name(std::string_view text) const { return is(now(), Token::Kind::kName, text); }
  bool accept(bool there) {
    if (there) next();
    return there;
  }
  bool skip(std::string_view symbol) { return accept(at_symbol(symbol)); }
  bool skip_name(std::string_view name) { return accept(at_name(name)); }
  void need(bool found, std::string_view what) const {
    if (!found) fail(fmt::format("expected {}, found {}", what, describe()));
  }
  void expect(std::string_view symbol) { need(skip(symbol), fmt::format("'{}'", symbol)); }
  void expect(Token::Kind kind) { need(accept(now().kind == kind), "the tag's end"); }
  std::string name() {
    need(now().kind == Token::Kind::kName, "a name");
    return next().text;
  }
  std::string describe() const {
    if (now().kind == Token::Kind::kEnd) return "the end of the template";
    if (now().kind == Token::Kind::kClose) return "'%}'";
    if (now().kind == Token::Kind::kPrintClose) return "'}}'";
    return now().kind == Token::Kind::kText ? "a text" : fmt::format("'{:.40}'", now().text);
  }

  // Trees.
  Expression node(Op kind, int line, std::vector<Expression> args = {}, std::string text = "") const {
    Expression e;
    e.kind = kind;
    e.line = line;
    e.name = std::move(text);
    for (const Expression& arg : args) e.depth = std::max(e.depth, arg.depth + 1);
    if (e.depth > kMaxTreeDepth) fail(fmt::format("an expression of more than {} steps", kMaxTreeDepth));
    e.args = std::move(args);
    return e;
  }
  template <class... Expressions>
  static std::vector<Expression> list(Expressions... parts) {
    std::vector<Expression> all;
    (all.push_back(std::move(parts)), ...);
    return all;
  }
  Expression constant(Value value) const {
    Expression e = node(Op::kConstant, now().line);
    e.value = std::move(value);
    return e;
  }

  Expression expression() {
    const Depth nesting = nest();
    Expression e = disjunction();
    while (at_name("if")) {
      const int line = next().line;
      std::vector<Expression> args = list(disjunction(), std::move(e));
      if (skip_name("else")) args.push_back(expression());
      e = node(Op::kConditional, line, std::move(args));
    }
    return e;
  }

  // Operands with a word between them.
  template <class Operand>
  Expression chain(std::string_view word, Op kind, const Operand& operand) {
    Expression e = operand();
    while (at_name(word)) {
      const int line = next().line;
      e = node(kind, line, list(std::move(e), operand()));
    }
    return e;
  }
  Expression disjunction() {
    return chain("or", Op::kOr, [&] { return chain("and", Op::kAnd, [&] { return negation(); }); });
  }

  Expression negation() {
    if (!at_name("not")) return comparison();
    const Depth nesting = nest();
    const int line = next().line;
    return node(Op::kNot, line, list(negation()));
  }

  std::string comparison_operator() {
    for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (skip(symbol)) return symbol;
    }
    if (skip_name("in")) return "in";
    if (!at_name("not") || !is(ahead(), Token::Kind::kName, "in")) return "";
    next();
    next();
    return "not in";
  }

  Expression comparison() {
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

  // Jinja's levels, loosest first. All of them group to the left, ** as well.
  Expression arithmetic(size_t level) {
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

  Expression unary(bool with_filters) {
    const Depth nesting = nest();
    Expression e;
    if (at_symbol("-") || at_symbol("+")) {
      const Token& sign = next();
      e = node(sign.text == "-" ? Op::kNegative : Op::kPositive, sign.line, list(unary(false)));
    } else {
      e = primary();
    }
    e = postfix(std::move(e));
    while (with_filters) {
      if (skip("|")) {
        const int line = now().line;
        e = node(Op::kFilter, line, list(std::move(e)), name());
        if (at_symbol("(")) arguments(e);
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

  Expression primary() {
    const Token& token = now();
    if (token.kind == Token::Kind::kName) {
      const std::string& word = next().text;
      if (word == "true" || word == "True") return constant(boolean(true));
      if (word == "false" || word == "False") return constant(boolean(false));
      if (word == "none" || word == "None") return constant(none());
      return node(Op::kName, token.line, {}, word);
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

  // [a, b] or {a: b, c: d}, from the opening bracket on.
  std::vector<Expression> items(std::string_view close) {
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

  // An expression, or several with commas between them, which is a tuple. `end`: the name that ends it too.
  Expression tuple(bool with_condition, std::string_view end, bool in_parentheses, bool target = false) {
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
    need(is_tuple || in_parentheses, "an expression");
    return node(Op::kTuple, line, std::move(all));
  }

  Expression postfix(Expression e) {
    for (;;) {
      const int line = now().line;
      if (skip(".")) {
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

  Expression subscript(Expression object) {
    const int line = next().line;
    std::vector<Expression> parts = list(std::move(object));
    need(!at_symbol("]"), "an expression");
    bool slice = false;
    do {
      parts.push_back(at_symbol(":") || at_symbol("]") ? constant(none()) : expression());
    } while (parts.size() < 4 && skip(":") && (slice = true));
    expect("]");
    if (!slice) return node(Op::kItem, line, std::move(parts));
    while (parts.size() < 4) parts.push_back(constant(none()));
    return node(Op::kSlice, line, std::move(parts));
  }

  // The arguments in parentheses, behind those that `e` has already.
  void arguments(Expression& e) {
    expect("(");
    bool first = true;
    while (!at_symbol(")")) {
      if (!first) expect(",");
      if (at_symbol(")")) break;
      first = false;
      if (at_symbol("*") || at_symbol("**")) fail("*arguments and **arguments are not supported");
      if (now().kind == Token::Kind::kName && is(ahead(), Token::Kind::kSymbol, "=")) {
        e.names.push_back(name());
        next();
      } else if (!e.names.empty()) {
        fail("an argument without a name behind one with a name");
      }
      add(e, expression());
    }
    expect(")");
  }

  void add(Expression& e, Expression arg) const {
    e.depth = std::max(e.depth, arg.depth + 1);
    if (e.depth > kMaxTreeDepth) fail(fmt::format("an expression of more than {} steps", kMaxTreeDepth));
    e.args.push_back(std::move(arg));
  }

  Expression call(Expression callee) {
    Expression e = node(Op::kCall, now().line, list(std::move(callee)));
    arguments(e);
    return e;
  }

  Expression test(Expression input) {
    const int line = next().line;
    const bool negated = skip_name("not");
    Expression e = node(Op::kTest, line, list(std::move(input)), name());
    const bool word =
        now().kind == Token::Kind::kName && !at_name("else") && !at_name("or") && !at_name("and");
    if (at_symbol("(")) {
      arguments(e);
    } else if (word || now().kind == Token::Kind::kText || now().kind == Token::Kind::kNumber ||
               at_symbol("[") || at_symbol("{")) {
      if (at_name("is")) fail("tests with 'is' cannot follow each other");
      add(e, postfix(primary()));
    }
    return negated ? node(Op::kNot, line, list(std::move(e))) : std::move(e);
  }

  // A target of an assignment: a name, an attribute of a namespace, or a tuple of them.
  Expression target() {
    const Depth nesting = nest();
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;  // of what is around the present place
};

}  // namespace lariat::jinja
