#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja_value.h"

// A template as text, tokens and tree. Lines count from 1. All throw Failure with the line.
namespace lariat::jinja {

struct Token {
  enum class Kind { kData, kOpen, kClose, kPrintOpen, kPrintClose, kName, kText, kNumber, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;  // kData, kName, kText (its value) and kSymbol
  Value value;       // kNumber
};

// With trim_blocks and lstrip_blocks, as transformers has them, and without comments.
std::vector<Token> tokenize(std::string_view source);

struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // args
    kTuple,      // args
    kDict,       // args: key, value, key, ...
    kAttribute,  // args: object; name
    kItem,       // args: object, key
    kSlice,      // args: object, start, stop, step
    kCall,       // args: callee, arguments; names: of the last arguments
    kFilter,     // args: input, arguments; names: of the last arguments; name
    kTest,       // the same
    kNegative,   // args[0], as in the rest
    kPositive,
    kNot,
    kAnd,
    kOr,
    kArithmetic,   // name: + - * / // % **
    kConcat,       // ~
    kCompare,      // args: n + 1 values; names: n operators
    kConditional,  // args: condition, value[, otherwise]
  };
  Kind kind = Kind::kConstant;
  int line = 0, depth = 1;
  std::string name;
  Value value;
  std::vector<Expression> args;
  std::vector<std::string> names;
};

struct Statement {
  enum class Kind {
    kText,        // text
    kPrint,       // exprs: value
    kIf,          // exprs: conditions; bodies: one each, and one more for else
    kFor,         // exprs: target, iterable[, condition]; bodies: loop, else
    kSet,         // exprs: target[, value]; bodies: text, without a value
    kMacro,       // text: name; names: parameters; exprs: defaults of the last ones; bodies
    kGeneration,  // bodies
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  std::vector<std::string> names;
  std::vector<Expression> exprs;
  std::vector<std::vector<Statement>> bodies;
};

struct Program {
  std::vector<Statement> body;
};

Program parse(std::string_view source);

}  // namespace lariat::jinja
