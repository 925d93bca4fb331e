#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja_syntax.h"

namespace lariat::jinja {

// How deep brackets and blocks may nest: parser and interpreter call themselves. Real templates need some 12.
inline constexpr int kMaxNesting = 120;
// Of an expression's tree; a + b + c + ... is a tree as deep as it is long.
inline constexpr int kMaxTreeDepth = 200;

// The part of the parser that reads expressions: Jinja's grammar, level by level.
class ExpressionParser {
 protected:
  using Op = Expression::Kind;
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  struct Nesting {
    explicit Nesting(ExpressionParser& parser) : depth(parser.depth_) {
      if (++depth > kMaxNesting) parser.fail(fmt::format("nested deeper than {} levels", kMaxNesting));
    }
    ~Nesting() { --depth; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int& depth;
  };

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
  void expect(std::string_view symbol) {
    if (!skip(symbol)) fail(fmt::format("expected '{}', found {}", symbol, describe()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail(fmt::format("expected '{}', found {}", name, describe()));
  }
  void expect(Token::Kind kind) {
    if (!accept(now().kind == kind)) fail(fmt::format("expected the tag's end, found {}", describe()));
  }
  std::string name() {
    if (now().kind != Token::Kind::kName) fail(fmt::format("expected a name, found {}", describe()));
    return next().text;
  }
  std::string describe() const {
    switch (now().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kClose:
        return "'%}'";
      case Token::Kind::kPrintClose:
        return "'}}'";
      case Token::Kind::kText:
        return "a text";
      default:
        return fmt::format("'{:.40}'", now().text);
    }
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
  static std::vector<Expression> list(Expression a) {
    std::vector<Expression> all;
    all.push_back(std::move(a));
    return all;
  }
  static std::vector<Expression> list(Expression a, Expression b) {
    std::vector<Expression> all = list(std::move(a));
    all.push_back(std::move(b));
    return all;
  }
  Expression constant(Value value) const {
    Expression e = node(Op::kConstant, now().line);
    e.value = std::move(value);
    return e;
  }

  Expression expression();
  Expression disjunction();
  Expression conjunction();
  Expression negation();
  std::string comparison_operator();
  Expression comparison();
  // Jinja's levels, loosest first: + -, ~, * / // %, **. All of them group to the left, ** as well.
  Expression arithmetic(size_t level);
  Expression unary(bool with_filters);
  Expression primary();
  // [a, b] or {a: b, c: d}, from the opening bracket on.
  std::vector<Expression> items(std::string_view close);
  // An expression, or several with commas between them, which is a tuple. `end`: the name that ends it as
  // well.
  Expression tuple(bool with_condition, std::string_view end, bool in_parentheses, bool target = false);
  Expression postfix(Expression e);
  Expression subscript(Expression object);
  // The arguments in parentheses, behind those that `e` has already.
  void arguments(std::vector<Expression>& args, std::vector<std::string>& names);
  Expression call(Expression callee);
  // "| name(...)", the bar included.
  Expression filter(Expression input);
  Expression filter_named(Expression input);
  Expression test(Expression input);
  // What can be assigned to: a name, an attribute of a namespace, or a tuple of them.
  Expression target();
  // The filters of "| a | b" behind `e`.
  Expression filters(Expression e);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace lariat::jinja
