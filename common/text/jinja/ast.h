// Syntax tree of a template. Owned by the template; never changes once parsed.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_AST_H_
#define FORETOKEN_COMMON_TEXT_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/operators.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind : uint8_t {
    kConst,      // constant
    kName,       // name
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value, ...
    kUnary,      // op, children[0]
    kNot,        // children[0]
    kBinary,     // op, children[0], children[1]
    kAnd,        // children[0], children[1]
    kOr,         // children[0], children[1]
    kCompare,    // children[0] ops[0] children[1] ops[1] children[2] ...
    kConcat,     // children
    kCondition,  // test, then, else (nullptr: none)
    kAttribute,  // children[0].name
    kItem,       // children[0][children[1]]
    kSlice,      // children[0][children[1]:children[2]:children[3]]
    kCall,       // children[0](children[1..], keywords)
    kFilter,  // children[0] | name(children[1..], keywords); nullptr: a block
    kTest,    // children[0] is name(children[1..], keywords)
    kNamespaceTarget,  // name.attribute as the target of a set
  };
  Kind kind = Kind::kConst;
  Op op = Op::kAdd;
  int line = 0;
  int depth = 1;  // levels below and with this node
  std::string name;
  std::string attribute;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  std::string name;
  ExprPtr otherwise;  // nullptr: none
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // exprs, each printed
    kIf,           // exprs[i]: bodies[i]; one more body is the else
    kFor,          // for target in exprs[0] if exprs[1] (nullptr: none);
                   // bodies[0], else bodies[1]
    kSet,          // target = exprs[0]
    kSetBlock,     // target = bodies[0] through the filters exprs[0] (nullptr)
    kMacro,        // name(parameters) bodies[0]
    kCallBlock,    // exprs[0] with a caller(parameters) of bodies[0]
    kFilterBlock,  // bodies[0] through exprs[0]
    kWith,         // targets[i] = exprs[i], bodies[0]
    kScope,        // bodies[0]
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  Text text;
  std::string name;
  ExprPtr target;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  std::vector<Parameter> parameters;
  bool uses_varargs = false;  // of a macro: its body names varargs or kwargs
  bool uses_kwargs = false;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_AST_H_
