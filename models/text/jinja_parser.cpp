#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "models/text/jinja_expression.h"

namespace lariat::jinja {
namespace {

constexpr size_t kMaxParameters = 64;

// Sets a name, an attribute of a namespace, or several of them.
using Target = std::function<void(Context&, const Value&)>;

std::string capture(Context& cx, const Program& body, Flow& flow) {
  std::string outer = std::exchange(cx.out, "");
  const Scope scope(cx);
  flow = body(cx);
  return std::exchange(cx.out, std::move(outer));
}

struct For {
  Target target;
  Expression items;
  std::optional<Expression> condition;
  Program body, otherwise;

  // Jinja evaluates the condition as late as possible, this code at once: the condition must not see changes
  // of the loop's body, which only a namespace can carry.
  std::vector<Value> kept(Context& cx) const {
    const Value source = to_sequence(cx, items(cx));
    if (!condition) return items_of(source);
    std::vector<Value> kept;
    const bool outer = std::exchange(cx.in_condition, true);
    for (const Value& value : items_of(source)) {
      const Scope scope(cx);
      target(cx, value);
      if (truth((*condition)(cx))) kept.push_back(value);
    }
    cx.in_condition = outer;
    return kept;
  }

  Flow operator()(Context& cx) const {
    const Value value = with_object(Kind::kLoop, Loop{kept(cx)});
    auto& loop = value.as<Loop>();
    cx.charge(loop.items.size() * sizeof(Value));
    for (; loop.at < loop.items.size(); ++loop.at) {
      cx.step();
      const Scope scope(cx);
      cx.define("loop", value);
      target(cx, loop.items[loop.at]);
      if (body(cx) == Flow::kBreak) return Flow::kNext;
    }
    const Scope scope(cx);
    return loop.items.empty() ? otherwise(cx) : Flow::kNext;
  }
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<Expression> defaults;  // of the last parameters
  Program body;

  // frame: the defining scope, which the macro never leaves (is_plain).
  Value call(Context& cx, const Call& call, size_t frame) const {
    const Depth running = cx.enter();
    const std::vector<std::string_view> names(parameters.begin(), parameters.end());
    const std::vector<const Value*> bound = bind_arguments(call, fmt::format("macro '{}'", name), names);
    const int line = cx.line;
    const Scope scope(cx, frame);
    const size_t without_default = parameters.size() - defaults.size();
    for (size_t i = 0; i < parameters.size(); ++i) {
      cx.define(names[i], bound[i] ? *bound[i]
                          : i >= without_default
                              ? defaults[i - without_default](cx)
                              : undefined(fmt::format("parameter '{}' was not provided", parameters[i])));
    }
    Flow flow = Flow::kNext;
    Value text = make_text(cx, capture(cx, body, flow));
    cx.line = line;
    return text;
  }
};

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}
  Program run() { return block({}); }

 private:
  // Statements up to a tag with one of these names (not consumed); without names, to the end.
  Program block(const std::vector<std::string_view>& ends) {
    const Depth nesting = nest();
    Program body;
    for (;;) {
      const Token& token = now();
      if (token.kind == Token::Kind::kEnd) {
        if (!ends.empty()) fail(fmt::format("the template ends where {{% {} %}} is missing", ends.back()));
        return body;
      }
      next();
      if (token.kind == Token::Kind::kData) {
        body.statements.push_back(following(token.line, [text = token.text](Context& cx) { cx.emit(text); }));
      } else if (token.kind == Token::Kind::kPrintOpen) {
        body.statements.push_back(
            following(token.line, [value = tuple(true)](Context& cx) { cx.emit(to_text(cx, value(cx))); }));
        expect(Token::Kind::kPrintClose);
      } else {
        if (now().kind == Token::Kind::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end())
          return body;
        body.statements.push_back(tag());
        expect(Token::Kind::kClose);
      }
    }
  }

  template <class Run>
  static Statement following(int line, Run run) {
    return {[run = std::move(run)](Context& cx) {
              run(cx);
              return Flow::kNext;
            },
            line};
  }

  // A body between a tag's end and its closing tag, whose name is consumed.
  Program body_until(std::string_view end) {
    expect(Token::Kind::kClose);
    Program body = block({end});
    next();
    return body;
  }

  // A body that becomes a function: outer loops do not apply to it.
  Program without_loops(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Program body = body_until(end);
    loops_ = loops;
    return body;
  }

  Statement tag() {
    const int line = now().line;
    const std::string word = name();
    if (word == "if") return {if_tag(), line};
    if (word == "for") return {for_tag(), line};
    if (word == "set") return {set_tag(), line};
    if (word == "macro") return macro_tag(line);
    if (word == "generation") {
      return {[body = without_loops("endgeneration")](Context& cx) {
                const Scope scope(cx);
                return body(cx);
              },
              line};
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) throw Failure(fmt::format("{{% {} %}} outside a loop", word), line);
      return {[flow = word == "break" ? Flow::kBreak : Flow::kContinue](Context&) { return flow; }, line};
    }
    throw Failure(fmt::format("unknown tag '{:.40}'; lariat knows if, for, set, macro, generation, break "
                              "and continue",
                              word),
                  line);
  }

  std::function<Flow(Context&)> if_tag() {
    std::vector<std::pair<Expression, Program>> branches;
    Program otherwise;
    do {
      Expression condition = tuple(false);
      expect(Token::Kind::kClose);
      branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
    } while (skip_name("elif"));
    if (next().text == "else") otherwise = body_until("endif");
    return [branches = std::move(branches), otherwise = std::move(otherwise)](Context& cx) {
      for (const auto& [condition, body] : branches) {
        if (truth(condition(cx))) return body(cx);
      }
      return otherwise(cx);
    };
  }

  For for_tag() {
    For loop;
    loop.target = targets();
    need(skip_name("in"), "'in'");
    loop.items = tuple(false);
    if (skip_name("if")) loop.condition = expression();
    if (at_name("recursive")) fail("recursive loops are not supported");
    expect(Token::Kind::kClose);
    ++loops_;
    loop.body = block({"else", "endfor"});
    --loops_;
    if (next().text == "else") loop.otherwise = body_until("endfor");
    return loop;
  }

  std::function<Flow(Context&)> set_tag() {
    Target target = targets();
    if (skip("=")) {
      return [target = std::move(target), value = tuple(true)](Context& cx) {
        target(cx, value(cx));
        return Flow::kNext;
      };
    }
    if (at_symbol("|")) fail("{% set %} of a block with filters is not supported");
    return [target = std::move(target), body = body_until("endset")](Context& cx) {
      Flow flow = Flow::kNext;
      std::string text = capture(cx, body, flow);
      if (flow == Flow::kNext) target(cx, make_text(cx, std::move(text)));
      return flow;
    };
  }

  Statement macro_tag(int line) {
    auto macro = std::make_shared<Macro>();
    macro->name = name();
    expect("(");
    std::vector<std::string>& names = macro->parameters;
    while (!at_symbol(")")) {
      if (!names.empty()) expect(",");
      names.push_back(name());
      if (names.size() > kMaxParameters) fail(fmt::format("more than {} parameters", kMaxParameters));
      if (std::count(names.begin(), names.end(), names.back()) > 1)
        fail(fmt::format("two parameters '{}'", names.back()));
      if (skip("=")) {
        macro->defaults.push_back(expression());
      } else if (!macro->defaults.empty()) {
        fail("a parameter without a default after one with a default");
      }
    }
    expect(")");
    const size_t begin = at_;
    macro->body = without_loops("endmacro");
    for (size_t i = begin; i < at_; ++i) {
      for (const char* word : {"varargs", "kwargs", "caller"}) {
        if (is(tokens_[i], Token::Kind::kName, word) && tokens_[i - 1].text != ".")
          throw Failure(fmt::format("'{}' in a macro is not supported", word), tokens_[i].line);
      }
    }
    return following(line, [macro](Context& cx) {
      const Function function = [macro, frame = cx.scope()](Context& caller, const Call& call) {
        return macro->call(caller, call, frame);
      };
      cx.define(macro->name, with_object(Kind::kMacro, function));
    });
  }

  Target target() {
    const Depth nesting = nest();
    if (skip("(")) {
      Target all = targets();
      expect(")");
      return all;
    }
    const int line = now().line;
    const std::string word = name();
    for (const char* reserved : {"true", "True", "false", "False", "none", "None"}) {
      if (word == reserved) fail(fmt::format("'{}' cannot be assigned to", word));
    }
    if (!skip(".")) return [word](Context& cx, const Value& value) { cx.define(word, value); };
    return [line, word, attribute = name()](Context& cx, const Value& value) {
      cx.line = line;
      set_attribute(cx, cx.lookup(word), attribute, value);
    };
  }

  Target targets() {
    std::vector<Target> all;
    bool is_tuple = false;
    while (!at_tuple_end() && !at_name("in")) {
      all.push_back(target());
      if (!skip(",")) break;
      is_tuple = true;
    }
    need(!all.empty(), "an expression");
    if (!is_tuple) return std::move(all[0]);
    return [all = std::move(all)](Context& cx, const Value& value) {
      const Value values = to_sequence(cx, value);
      if (items_of(values).size() != all.size())
        throw Failure(fmt::format("{} names; values: {}", all.size(), items_of(values).size()));
      for (size_t i = 0; i < all.size(); ++i) all[i](cx, items_of(values)[i]);
    };
  }

  int loops_ = 0;
};

}  // namespace

Program parse(std::string_view source) { return Parser(tokenize(source)).run(); }

std::string render(const Program& program, Context& cx,
                   const std::vector<std::pair<std::string, Value>>& variables) {
  for (const auto& [name, value] : variables) cx.define(name, value);
  try {
    program(cx);
  } catch (const Failure& failure) {
    throw Failure(failure.what(), cx.line);
  }
  return std::move(cx.out);
}

}  // namespace lariat::jinja
