#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/text/jinja_expression.h"

namespace lariat::jinja {
namespace {

constexpr size_t kMaxParameters = 64;

using Body = std::vector<Statement>;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}
  Program run() { return {block({})}; }

 private:
  // Statements up to a tag of one of these names, which comes next; up to the end when there are none.
  Body block(const std::vector<std::string_view>& ends) {
    const Depth nesting = nest();
    Body body;
    for (;;) {
      const Token& token = now();
      if (token.kind == Token::Kind::kEnd) {
        if (!ends.empty()) fail(fmt::format("the template ends where {{% {} %}} is missing", ends.back()));
        return body;
      }
      next();
      if (token.kind == Token::Kind::kData) {
        body.push_back(statement(Statement::Kind::kText, token.line));
        body.back().text = token.text;
      } else if (token.kind == Token::Kind::kPrintOpen) {
        body.push_back(statement(Statement::Kind::kPrint, token.line));
        body.back().exprs.push_back(tuple(true, "", false));
        expect(Token::Kind::kPrintClose);
      } else {
        if (now().kind == Token::Kind::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end())
          return body;
        body.push_back(tag());
        expect(Token::Kind::kClose);
      }
    }
  }

  // A body between a tag's end and the tag that closes it, whose name is taken.
  Body body_until(std::string_view end) {
    expect(Token::Kind::kClose);
    Body body = block({end});
    next();
    return body;
  }

  // A body that becomes a function: loops around it are not its own.
  Body without_loops(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = body_until(end);
    loops_ = loops;
    return body;
  }

  static Statement statement(Statement::Kind kind, int line) {
    Statement s;
    s.kind = kind;
    s.line = line;
    return s;
  }

  Statement tag() {
    const int line = now().line;
    const std::string word = name();
    if (word == "if") return if_tag(line);
    if (word == "for") return for_tag(line);
    if (word == "set") return set_tag(line);
    if (word == "macro") return macro_tag(line);
    if (word == "generation") {
      Statement s = statement(Statement::Kind::kGeneration, line);
      s.bodies.push_back(without_loops("endgeneration"));
      return s;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) throw Failure(fmt::format("{{% {} %}} outside a loop", word), line);
      return statement(word == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, line);
    }
    throw Failure(fmt::format("unknown tag '{:.40}'; lariat knows if, for, set, macro, generation, break "
                              "and continue",
                              word),
                  line);
  }

  Statement if_tag(int line) {
    Statement s = statement(Statement::Kind::kIf, line);
    for (;;) {
      s.exprs.push_back(tuple(false, "", false));
      expect(Token::Kind::kClose);
      s.bodies.push_back(block({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (next().text == "else") s.bodies.push_back(body_until("endif"));
      return s;
    }
  }

  Statement for_tag(int line) {
    Statement s = statement(Statement::Kind::kFor, line);
    s.exprs.push_back(tuple(false, "in", false, true));
    need(skip_name("in"), "'in'");
    s.exprs.push_back(tuple(false, "recursive", false));
    if (skip_name("if")) s.exprs.push_back(expression());
    if (at_name("recursive")) fail("recursive loops are not supported");
    expect(Token::Kind::kClose);
    ++loops_;
    s.bodies.push_back(block({"else", "endfor"}));
    --loops_;
    if (next().text == "else") s.bodies.push_back(body_until("endfor"));
    return s;
  }

  Statement set_tag(int line) {
    Statement s = statement(Statement::Kind::kSet, line);
    s.exprs.push_back(tuple(false, "", false, true));
    if (skip("=")) {
      s.exprs.push_back(tuple(true, "", false));
    } else {
      if (at_symbol("|")) fail("{% set %} of a block with filters is not supported");
      s.bodies.push_back(body_until("endset"));
    }
    return s;
  }

  Statement macro_tag(int line) {
    Statement s = statement(Statement::Kind::kMacro, line);
    s.text = name();
    expect("(");
    while (!at_symbol(")")) {
      if (!s.names.empty()) expect(",");
      s.names.push_back(name());
      if (s.names.size() > kMaxParameters) fail(fmt::format("more than {} parameters", kMaxParameters));
      if (std::count(s.names.begin(), s.names.end(), s.names.back()) > 1)
        fail(fmt::format("two parameters '{}'", s.names.back()));
      if (skip("=")) {
        s.exprs.push_back(expression());
      } else if (!s.exprs.empty()) {
        fail("a parameter without a default behind one with a default");
      }
    }
    expect(")");
    const size_t begin = at_;
    s.bodies.push_back(without_loops("endmacro"));
    for (size_t i = begin; i < at_; ++i) {
      for (const char* word : {"varargs", "kwargs", "caller"}) {
        if (is(tokens_[i], Token::Kind::kName, word) && tokens_[i - 1].text != ".")
          throw Failure(fmt::format("'{}' in a macro is not supported", word), tokens_[i].line);
      }
    }
    return s;
  }

  int loops_ = 0;  // around the present place
};

}  // namespace

Program parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace lariat::jinja
