#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja_eval.h"
#include "models/text/jinja_tree.h"

namespace lariat::jinja {

// Parser and interpreter are recursive. Real templates need some 12.
inline constexpr int kMaxNesting = 120;
// a + b + c + ... is as deep as it is long.
inline constexpr int kMaxTreeDepth = 200;

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Depth nest() {
    static const std::string kWhat = fmt::format("nested deeper than {} levels", kMaxNesting);
    return Depth(depth_, kMaxNesting, kWhat, now().line);
  }

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

  using Parts = std::vector<Expression>;
  template <class... Expressions>
  static Parts list(Expressions... parts) {
    Parts all;
    (all.push_back(std::move(parts)), ...);
    return all;
  }

  // Evaluates only the parts it needs: eval(Context&, const Parts&).
  template <class Eval>
  Expression lazy_node(int line, Parts parts, Eval eval) const {
    Expression e{std::move(eval), {}, line};
    for (const Expression& part : parts) e.depth = std::max(e.depth, part.depth + 1);
    if (e.depth > kMaxTreeDepth) fail(fmt::format("an expression of more than {} steps", kMaxTreeDepth));
    e.parts = std::move(parts);
    return e;
  }

  // Evaluates all its parts first: eval(Context&, std::vector<Value>).
  template <class Eval>
  Expression node(int line, Parts operands, Eval eval) const {
    return lazy_node(line, std::move(operands), [line, eval](Context& cx, const Parts& parts) {
      std::vector<Value> values;
      values.reserve(parts.size());
      for (const Expression& part : parts) values.push_back(part(cx));
      cx.line = line;
      return eval(cx, std::move(values));
    });
  }

  Expression constant(Value value) const {
    return lazy_node(now().line, {}, [value](Context&, const Parts&) { return value; });
  }
  Expression variable(int line, const std::string& name) const {
    return lazy_node(line, {}, [name](Context& cx, const Parts&) { return cx.lookup(name); });
  }
  Expression sequence(Kind kind, int line, Parts items) const {
    return node(line, std::move(items), [kind](Context& cx, std::vector<Value> values) {
      return make_sequence(cx, kind, std::move(values));
    });
  }
  Expression negation_of(int line, Expression e) const {
    return node(line, list(std::move(e)),
                [](Context&, const std::vector<Value>& values) { return boolean(!truth(values[0])); });
  }

  Expression expression() {
    const Depth nesting = nest();
    Expression e = disjunction();
    while (at_name("if")) {
      const int line = next().line;
      Parts operands = list(disjunction(), std::move(e));
      if (skip_name("else")) operands.push_back(expression());
      e = lazy_node(line, std::move(operands), [](Context& cx, const Parts& parts) {
        if (truth(parts[0](cx))) return parts[1](cx);
        return parts.size() > 2 ? parts[2](cx)
                                : undefined("the inline if-expression is false and has no else");
      });
    }
    return e;
  }

  // The value is the first operand with a deciding truth, else the last.
  template <class Operand>
  Expression chain(std::string_view word, bool deciding, const Operand& operand) {
    Expression e = operand();
    while (at_name(word)) {
      const int line = next().line;
      e = lazy_node(line, list(std::move(e), operand()), [deciding](Context& cx, const Parts& parts) {
        Value first = parts[0](cx);
        return truth(first) == deciding ? first : parts[1](cx);
      });
    }
    return e;
  }
  Expression disjunction() {
    return chain("or", true, [&] { return chain("and", false, [&] { return negation(); }); });
  }

  Expression negation() {
    if (!at_name("not")) return comparison();
    const Depth nesting = nest();
    const int line = next().line;
    return negation_of(line, negation());
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
    Parts operands = list(arithmetic_level(0));
    std::vector<std::string> operators;
    for (std::string op = comparison_operator(); !op.empty(); op = comparison_operator()) {
      operators.push_back(std::move(op));
      operands.push_back(arithmetic_level(0));
    }
    if (operators.empty()) return std::move(operands[0]);
    return lazy_node(line, std::move(operands), [line, operators](Context& cx, const Parts& parts) {
      Value left = parts[0](cx);
      for (size_t i = 0; i < operators.size(); ++i) {
        Value right = parts[i + 1](cx);
        cx.line = line;
        if (!compare(cx, operators[i], left, right)) return boolean(false);
        left = std::move(right);
      }
      return boolean(true);
    });
  }

  // Jinja's levels, loosest first. All levels group to the left, ** too.
  Expression arithmetic_level(size_t level) {
    static const std::vector<std::vector<std::string_view>> kLevels = {
        {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
    if (level == kLevels.size()) return unary(true);
    Expression e = arithmetic_level(level + 1);
    const auto& symbols = kLevels[level];
    while (now().kind == Token::Kind::kSymbol &&
           std::find(symbols.begin(), symbols.end(), now().text) != symbols.end()) {
      const Token& symbol = next();
      e = node(symbol.line, list(std::move(e), arithmetic_level(level + 1)),
               [symbol = symbol.text](Context& cx, std::vector<Value> values) {
                 return arithmetic(cx, symbol, std::move(values[0]), values[1]);
               });
    }
    return e;
  }

  Expression unary(bool with_filters) {
    const Depth nesting = nest();
    Expression e;
    if (at_symbol("-") || at_symbol("+")) {
      const Token& sign = next();
      e = node(sign.line, list(unary(false)),
               [minus = sign.text == "-"](Context&, const std::vector<Value>& values) {
                 return minus ? negative(values[0]) : negative(negative(values[0]));
               });
    } else {
      e = primary();
    }
    e = postfix(std::move(e));
    while (with_filters) {
      if (skip("|")) {
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

  // A call: eval(Context&, first part's value, Call). The other parts are arguments too.
  template <class Eval>
  Expression call_node(int line, Parts parts, Eval eval) {
    std::vector<std::string> names;
    if (at_symbol("(")) names = arguments(parts);
    return node(line, std::move(parts), [names, eval](Context& cx, std::vector<Value> values) {
      const Value first = std::move(values[0]);
      values.erase(values.begin());
      return eval(cx, first, Call{std::move(values), names});
    });
  }

  Expression call(Expression callee) { return call_node(now().line, list(std::move(callee)), call_value); }

  Expression filter(Expression input) {
    const int line = now().line;
    const std::string word = name();
    return call_node(line, list(std::move(input)), [word](Context& cx, const Value& value, const Call& call) {
      return apply_filter(cx, word, value, call);
    });
  }

  Expression test(Expression input) {
    const int line = next().line;
    const bool negated = skip_name("not");
    const std::string word = name();
    Parts parts = list(std::move(input));
    const bool at_word =
        now().kind == Token::Kind::kName && !at_name("else") && !at_name("or") && !at_name("and");
    if (at_word || now().kind == Token::Kind::kText || now().kind == Token::Kind::kNumber || at_symbol("[") ||
        at_symbol("{")) {
      if (at_name("is")) fail("tests with 'is' cannot follow each other");
      parts.push_back(postfix(primary()));
    }
    Expression e =
        call_node(line, std::move(parts), [word](Context& cx, const Value& value, const Call& call) {
          return apply_test(cx, word, value, call);
        });
    return negated ? negation_of(line, std::move(e)) : std::move(e);
  }

  Expression primary() {
    const Token& token = now();
    if (token.kind == Token::Kind::kName) {
      const std::string& word = next().text;
      if (word == "true" || word == "True") return constant(boolean(true));
      if (word == "false" || word == "False") return constant(boolean(false));
      if (word == "none" || word == "None") return constant(none());
      return variable(token.line, word);
    }
    if (token.kind == Token::Kind::kText) {
      std::string text;
      while (now().kind == Token::Kind::kText) text += next().text;
      return constant(constant_text(std::move(text)));
    }
    if (token.kind == Token::Kind::kNumber) return constant(next().value);
    if (skip("(")) {
      Expression e = at_symbol(")") ? sequence(Kind::kTuple, token.line, {}) : tuple(true);
      expect(")");
      return e;
    }
    if (at_symbol("[")) return sequence(Kind::kList, token.line, items("]"));
    if (at_symbol("{")) {
      return node(token.line, items("}"), [](Context& cx, const std::vector<Value>& values) {
        Value dict = make_dict(cx);
        for (size_t i = 0; i < values.size(); i += 2) put(cx, dict.as<Dict>(), values[i], values[i + 1]);
        return dict;
      });
    }
    fail("expected an expression, found " + describe());
  }

  // [a, b] or {a: b, c: d}, from the opening bracket on.
  Parts items(std::string_view close) {
    Parts all;
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

  Expression tuple(bool with_condition) {
    const int line = now().line;
    const auto item = [&] { return with_condition ? expression() : disjunction(); };
    Expression first = item();
    if (!at_symbol(",")) return first;
    Parts all = list(std::move(first));
    while (skip(",") && !at_tuple_end()) all.push_back(item());
    return sequence(Kind::kTuple, line, std::move(all));
  }
  bool at_tuple_end() const {
    return now().kind == Token::Kind::kPrintClose || now().kind == Token::Kind::kClose || at_symbol(")");
  }

  Expression postfix(Expression e) {
    for (;;) {
      const int line = now().line;
      if (skip(".")) {
        e = now().kind == Token::Kind::kNumber ? item_of(line, list(std::move(e), constant(next().value)))
                                               : attribute_of(line, std::move(e));
      } else if (at_symbol("[")) {
        e = subscript(std::move(e));
      } else if (at_symbol("(")) {
        e = call(std::move(e));
      } else {
        return e;
      }
    }
  }

  Expression item_of(int line, Parts parts) const {
    return node(line, std::move(parts),
                [](Context& cx, const std::vector<Value>& values) { return item(cx, values[0], values[1]); });
  }

  Expression attribute_of(int line, Expression object) {
    const std::string word = name();
    Parts parts = list(std::move(object));
    if (!at_symbol("(")) {
      return node(line, std::move(parts), [word](Context& cx, const std::vector<Value>& values) {
        return attribute(cx, values[0], word);
      });
    }
    return call_node(now().line, std::move(parts), [word](Context& cx, const Value& self, const Call& call) {
      return has_method(self, word) ? call_method(cx, self, word, call)
                                    : call_value(cx, attribute(cx, self, word), call);
    });
  }

  Expression subscript(Expression object) {
    const int line = next().line;
    Parts parts = list(std::move(object));
    need(!at_symbol("]"), "an expression");
    bool is_slice = false;
    do {
      parts.push_back(at_symbol(":") || at_symbol("]") ? constant(none()) : expression());
    } while (parts.size() < 4 && skip(":") && (is_slice = true));
    expect("]");
    if (!is_slice) return item_of(line, std::move(parts));
    while (parts.size() < 4) parts.push_back(constant(none()));
    return node(line, std::move(parts), [](Context& cx, const std::vector<Value>& values) {
      return slice(cx, values[0], values[1], values[2], values[3]);
    });
  }

  // Appends the arguments in parentheses; returns the names of the last ones.
  std::vector<std::string> arguments(Parts& parts) {
    std::vector<std::string> names;
    expect("(");
    for (bool first = true; !at_symbol(")"); first = false) {
      if (!first) expect(",");
      if (at_symbol(")")) break;
      if (at_symbol("*") || at_symbol("**")) fail("*arguments and **arguments are not supported");
      if (now().kind == Token::Kind::kName && is(ahead(), Token::Kind::kSymbol, "=")) {
        names.push_back(name());
        next();
      } else if (!names.empty()) {
        fail("an argument without a name after one with a name");
      }
      parts.push_back(expression());
    }
    expect(")");
    return names;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace lariat::jinja
