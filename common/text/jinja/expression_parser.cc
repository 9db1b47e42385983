#include "common/text/jinja/expression_parser.h"

#include <algorithm>
#include <memory>
#include <string>

#include "common/base/status_macros.h"
#include "common/text/jinja/python_text.h"

namespace foretoken::jinja {
namespace {

// Binary operators, a list for each level of precedence. The levels are
// jinja2's, not Python's: `~` stands between sums and products, and a minus
// sign binds more tightly than `**`, so that -2 ** 2 is 4.
constexpr OperatorName kSums[] = {{"+", Op::kAdd}, {"-", Op::kSubtract}};
constexpr OperatorName kProducts[] = {{"*", Op::kMultiply},
                                      {"/", Op::kDivide},
                                      {"//", Op::kFloorDivide},
                                      {"%", Op::kModulo}};
constexpr OperatorName kPowers[] = {{"**", Op::kPower}};
constexpr OperatorName kComparisons[] = {
    {"==", Op::kEqual},     {"!=", Op::kNotEqual}, {"<", Op::kLess},
    {"<=", Op::kLessEqual}, {">", Op::kGreater},   {">=", Op::kGreaterEqual}};

ExprPtr New(Expr::Kind kind, int line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

}  // namespace

// Null children are allowed: the parts of a slice or condition that are absent.
template <typename... Children>
ExpressionParser::ExprOr ExpressionParser::Node(Expr::Kind kind, int line,
                                                Children... children) const {
  ExprPtr expr = New(kind, line);
  (expr->children.push_back(std::move(children)), ...);
  return Done(std::move(expr));
}

std::optional<Op> ExpressionParser::FindOp(
    absl::Span<const OperatorName> ops) const {
  for (const OperatorName& op : ops) {
    if (IsOp(op.text)) return op.op;
  }
  return std::nullopt;
}

ExpressionParser::ExprOr ExpressionParser::ParseBinary(
    absl::Span<const OperatorName> ops, ExprOr (ExpressionParser::*operand)()) {
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
  // The loop makes operators of one level left-associative.
  while (const auto op = FindOp(ops)) {
    const int line = current().line;
    Advance();
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
    FORETOKEN_ASSIGN_OR_RETURN(left, Node(Expr::Kind::kBinary, line,
                                          std::move(left), std::move(right)));
    left->op = *op;
  }
  return left;
}

// Every node passes here once its children are known. Operators chained in a
// loop do not deepen the parser's own recursion, but they deepen the tree,
// which evaluation and destructors walk by recursion.
ExpressionParser::ExprOr ExpressionParser::Done(ExprPtr expr) const {
  int depth = 0;
  for (const ExprPtr& child : expr->children) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  }
  for (const auto& [name, child] : expr->keywords) {
    depth = std::max(depth, child->depth);
  }
  expr->depth = depth + 1;
  if (expr->depth > kMaxExprDepth) return Fail("nested too deep");
  return expr;
}

ExpressionParser::ExprOr ExpressionParser::Constant(Value value,
                                                    int line) const {
  ExprPtr expr = New(Expr::Kind::kConst, line);
  expr->constant = std::move(value);
  return expr;
}

ExpressionParser::ExprOr ExpressionParser::ParseExpression() {
  const Level level(depth_);
  FORETOKEN_RETURN_IF_ERROR(CheckDepth());
  int line = current().line;
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, ParseOr());
  // `a if b else c if d else e`: the recursion after `else` makes it
  // right-associative; the loop is for `a if b if c`, which jinja2 allows.
  while (SkipName("if")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr test, ParseOr());
    ExprPtr otherwise;
    if (SkipName("else")) {
      FORETOKEN_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    // Children: the test, the value, and the value of `else` (null: undefined).
    FORETOKEN_ASSIGN_OR_RETURN(
        expr, Node(Expr::Kind::kCondition, line, std::move(test),
                   std::move(expr), std::move(otherwise)));
    line = current().line;
  }
  return expr;
}

ExpressionParser::ExprOr ExpressionParser::ParseOr() {
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (IsName("or")) {
    const int line = current().line;
    Advance();
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    FORETOKEN_ASSIGN_OR_RETURN(
        left, Node(Expr::Kind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::ExprOr ExpressionParser::ParseAnd() {
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (IsName("and")) {
    const int line = current().line;
    Advance();
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    FORETOKEN_ASSIGN_OR_RETURN(
        left, Node(Expr::Kind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::ExprOr ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Level level(depth_);
  FORETOKEN_RETURN_IF_ERROR(CheckDepth());
  const int line = current().line;
  Advance();
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  return Node(Expr::Kind::kNot, line, std::move(operand));
}

ExpressionParser::ExprOr ExpressionParser::ParseCompare() {
  const int line = current().line;
  // A chain is one node, a < b < c: the interpreter evaluates b once.
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  ExprPtr compare = New(Expr::Kind::kCompare, line);
  while (true) {
    if (const auto op = FindOp(kComparisons)) {
      Advance();
      compare->ops.push_back(*op);
    } else if (SkipName("in")) {
      compare->ops.push_back(Op::kIn);
    } else if (IsName("not") && IsName(next(), "in")) {
      // `not` alone does not belong to a comparison.
      Advance();
      Advance();
      compare->ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    if (compare->children.empty()) {
      compare->children.push_back(std::move(first));
    }
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    compare->children.push_back(std::move(operand));
  }
  if (compare->ops.empty()) return first;
  return Done(std::move(compare));
}

ExpressionParser::ExprOr ExpressionParser::ParseSum() {
  return ParseBinary(kSums, &ExpressionParser::ParseConcat);
}

ExpressionParser::ExprOr ExpressionParser::ParseProduct() {
  return ParseBinary(kProducts, &ExpressionParser::ParsePower);
}

// `**` is left-associative, as in jinja2 and unlike in Python: 2 ** 3 ** 2 is
// 64.
ExpressionParser::ExprOr ExpressionParser::ParsePower() {
  return ParseBinary(kPowers, &ExpressionParser::ParseFiltered);
}

// A chain of `~` is one node, so that its text is built once rather than copied
// for every operator.
ExpressionParser::ExprOr ExpressionParser::ParseConcat() {
  const int line = current().line;
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!IsOp("~")) return first;
  ExprPtr concat = New(Expr::Kind::kConcat, line);
  concat->children.push_back(std::move(first));
  while (SkipOp("~")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr operand, ParseProduct());
    concat->children.push_back(std::move(operand));
  }
  return Done(std::move(concat));
}

// Filters and tests bind to a unary expression, sign included: -x|abs is
// (-x)|abs. A call after a filter calls its result.
ExpressionParser::ExprOr ExpressionParser::ParseFiltered() {
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, ParseUnary());
  while (true) {
    if (IsOp("|")) {
      Advance();
      FORETOKEN_ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
    } else if (IsName("is")) {
      FORETOKEN_ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (IsOp("(")) {
      FORETOKEN_ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

ExpressionParser::ExprOr ExpressionParser::ParseUnary() {
  const int line = current().line;
  if (!IsOp("-") && !IsOp("+")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, ParsePrimary());
    return ParsePostfix(std::move(expr));
  }
  const Level level(depth_);
  FORETOKEN_RETURN_IF_ERROR(CheckDepth());
  const Op op = IsOp("-") ? Op::kNegate : Op::kPlus;
  Advance();
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary());
  FORETOKEN_ASSIGN_OR_RETURN(
      ExprPtr expr, Node(Expr::Kind::kUnary, line, std::move(operand)));
  expr->op = op;
  return ParsePostfix(std::move(expr));
}

ExpressionParser::ExprOr ExpressionParser::ParsePrimary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case Token::Kind::kName: {
      const std::string name = token.text;
      Advance();
      if (name == "true" || name == "True") {
        return Constant(Value::Bool(true), line);
      }
      if (name == "false" || name == "False") {
        return Constant(Value::Bool(false), line);
      }
      if (name == "none" || name == "None") {
        return Constant(Value::None(), line);
      }
      // A macro takes surplus arguments only if its body reads them, and that
      // is known before it is called.
      if (macro_ != nullptr && name == "varargs") macro_->uses_varargs = true;
      if (macro_ != nullptr && name == "kwargs") macro_->uses_kwargs = true;
      ExprPtr expr = New(Expr::Kind::kName, line);
      expr->name = name;
      return expr;
    }
    case Token::Kind::kString: {
      std::string text;
      while (Is(Token::Kind::kString)) {  // adjacent strings are one
        text += current().text;
        Advance();
      }
      return Constant(Value::String(text), line);
    }
    case Token::Kind::kInteger: {
      const auto number = ParseInteger(token.text, 0);
      if (!number.has_value()) return Fail("malformed or too large number");
      Advance();
      return Constant(Value::Integer(*number), line);
    }
    case Token::Kind::kFloat: {
      const auto number = ParseFloat(token.text);
      if (!number.has_value()) return Fail("malformed number");
      Advance();
      return Constant(Value::Float(*number), line);
    }
    default:
      break;
  }
  if (SkipOp("(")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple({}, true));
    FORETOKEN_RETURN_IF_ERROR(ExpectOp(")"));
    return expr;
  }
  if (SkipOp("[")) return ParseList(line);
  if (SkipOp("{")) return ParseDict(line);
  return Unexpected("an expression");
}

bool ExpressionParser::IsTupleEnd(Names end) const {
  return Is(Token::Kind::kPrintEnd) || Is(Token::Kind::kTagEnd) || IsOp(")") ||
         IsName(end);
}

ExpressionParser::ExprOr ExpressionParser::ParseTuple(Names end,
                                                      bool in_parentheses,
                                                      bool with_condition) {
  const int line = current().line;
  ExprPtr tuple = New(Expr::Kind::kTuple, line);
  bool is_tuple = false;
  while (!IsTupleEnd(end)) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr item,
                               with_condition ? ParseExpression() : ParseOr());
    tuple->children.push_back(std::move(item));
    if (!SkipOp(",")) break;
    is_tuple = true;
  }
  // A comma makes the tuple, not the parentheses: (x) is x, (x,) is not. The
  // empty tuple needs them.
  if (!is_tuple && !tuple->children.empty()) {
    return std::move(tuple->children[0]);
  }
  if (!is_tuple && !in_parentheses) return Unexpected("an expression");
  return Done(std::move(tuple));
}

ExpressionParser::ExprOr ExpressionParser::ParseList(int line) {
  ExprPtr list = New(Expr::Kind::kList, line);
  while (!IsOp("]")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    list->children.push_back(std::move(item));
    if (!SkipOp(",")) break;
  }
  FORETOKEN_RETURN_IF_ERROR(ExpectOp("]"));
  return Done(std::move(list));
}

ExpressionParser::ExprOr ExpressionParser::ParseDict(int line) {
  ExprPtr dict = New(Expr::Kind::kDict, line);
  while (!IsOp("}")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    FORETOKEN_RETURN_IF_ERROR(ExpectOp(":"));
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
    if (!SkipOp(",")) break;
  }
  FORETOKEN_RETURN_IF_ERROR(ExpectOp("}"));
  return Done(std::move(dict));
}

ExpressionParser::ExprOr ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    const int line = current().line;
    if (SkipOp(".")) {
      // Django's way to write an index, which jinja2 knows: items.0
      if (Is(Token::Kind::kInteger)) {
        FORETOKEN_ASSIGN_OR_RETURN(ExprPtr index, ParsePrimary());
        FORETOKEN_ASSIGN_OR_RETURN(
            expr,
            Node(Expr::Kind::kItem, line, std::move(expr), std::move(index)));
        continue;
      }
      FORETOKEN_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
      FORETOKEN_ASSIGN_OR_RETURN(
          expr, Node(Expr::Kind::kAttribute, line, std::move(expr)));
      expr->name = std::move(name);
    } else if (SkipOp("[")) {
      FORETOKEN_ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr), line));
    } else if (IsOp("(")) {
      FORETOKEN_ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

ExpressionParser::ExprOr ExpressionParser::ParseSubscript(ExprPtr object,
                                                          int line) {
  // [start], or [start:stop:step] with any part absent (null).
  ExprPtr start;
  if (!IsOp(":")) {
    FORETOKEN_ASSIGN_OR_RETURN(start, ParseExpression());
  }
  if (!IsOp(":")) {
    FORETOKEN_RETURN_IF_ERROR(ExpectOp("]"));
    return Node(Expr::Kind::kItem, line, std::move(object), std::move(start));
  }
  Advance();
  ExprPtr stop;
  ExprPtr step;
  if (!IsOp(":") && !IsOp("]")) {
    FORETOKEN_ASSIGN_OR_RETURN(stop, ParseExpression());
  }
  if (SkipOp(":") && !IsOp("]")) {
    FORETOKEN_ASSIGN_OR_RETURN(step, ParseExpression());
  }
  FORETOKEN_RETURN_IF_ERROR(ExpectOp("]"));
  return Node(Expr::Kind::kSlice, line, std::move(object), std::move(start),
              std::move(stop), std::move(step));
}

absl::Status ExpressionParser::ParseArguments(Expr& call) {
  FORETOKEN_RETURN_IF_ERROR(ExpectOp("("));
  while (!IsOp(")")) {
    if (IsOp("*") || IsOp("**")) {
      return Fail("arguments spread by * are not supported");
    }
    // A name alone may begin an expression; only the token after it tells.
    if (Is(Token::Kind::kName) && IsOp(next(), "=")) {
      std::string name = current().text;
      Advance();
      Advance();
      FORETOKEN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.keywords.empty()) {
        return Fail("a positional argument behind a named one");
      }
      FORETOKEN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      call.children.push_back(std::move(value));
    }
    if (!SkipOp(",")) break;
  }
  return ExpectOp(")");
}

ExpressionParser::ExprOr ExpressionParser::ParseCall(ExprPtr callee) {
  ExprPtr call = New(Expr::Kind::kCall, current().line);
  call->children.push_back(std::move(callee));
  FORETOKEN_RETURN_IF_ERROR(ParseArguments(*call));
  return Done(std::move(call));
}

ExpressionParser::ExprOr ExpressionParser::ParseFilter(ExprPtr operand) {
  ExprPtr filter = New(Expr::Kind::kFilter, current().line);
  filter->children.push_back(std::move(operand));
  FORETOKEN_ASSIGN_OR_RETURN(filter->name, ExpectAnyName());
  if (IsOp("(")) FORETOKEN_RETURN_IF_ERROR(ParseArguments(*filter));
  return Done(std::move(filter));
}

ExpressionParser::ExprOr ExpressionParser::ParseTest(ExprPtr operand) {
  const int line = current().line;
  Advance();
  const bool negated = SkipName("not");
  ExprPtr test = New(Expr::Kind::kTest, line);
  test->children.push_back(std::move(operand));
  FORETOKEN_ASSIGN_OR_RETURN(test->name, ExpectAnyName());
  if (IsOp("(")) {
    FORETOKEN_RETURN_IF_ERROR(ParseArguments(*test));
    // One argument needs no parentheses: `x is divisibleby 3`. It is a primary
    // with its postfixes, so that `x is equalto y and z` ends before `and`.
  } else if ((Is(Token::Kind::kName) && !IsName({"else", "or", "and"})) ||
             Is(Token::Kind::kString) || Is(Token::Kind::kInteger) ||
             Is(Token::Kind::kFloat) || IsOp("[") || IsOp("{")) {
    if (IsName("is")) return Fail("tests cannot be chained with is");
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    FORETOKEN_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->children.push_back(std::move(argument));
  }
  FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, Done(std::move(test)));
  // `x is not f` is not (x is f).
  if (!negated) return expr;
  return Node(Expr::Kind::kNot, line, std::move(expr));
}

ExpressionParser::ExprOr ExpressionParser::ParseTarget(Names end,
                                                       bool with_namespace) {
  const int line = current().line;
  ExprPtr tuple = New(Expr::Kind::kTuple, line);
  bool is_tuple = false;
  while (!IsTupleEnd(end) && !IsOp("=")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr item, ParseOneTarget(with_namespace));
    tuple->children.push_back(std::move(item));
    if (!SkipOp(",")) break;
    is_tuple = true;
  }
  if (tuple->children.empty()) return Unexpected("a name");
  if (!is_tuple) return std::move(tuple->children[0]);
  return Done(std::move(tuple));
}

ExpressionParser::ExprOr ExpressionParser::ParseOneTarget(bool with_namespace) {
  const Level level(depth_);
  FORETOKEN_RETURN_IF_ERROR(CheckDepth());
  const int line = current().line;
  if (SkipOp("(")) {
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr tuple, ParseTarget({}, false));
    FORETOKEN_RETURN_IF_ERROR(ExpectOp(")"));
    return tuple;
  }
  for (const char* constant :
       {"true", "false", "none", "True", "False", "None"}) {
    if (IsName(constant)) return Fail("cannot assign to a constant");
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
  ExprPtr target = New(Expr::Kind::kName, line);
  target->name = std::move(name);
  // `set ns.name = value` assigns to a namespace, which carries a value out of
  // a loop: a plain variable set in its body ends with the body.
  if (with_namespace && SkipOp(".")) {
    target->kind = Expr::Kind::kNamespaceTarget;
    FORETOKEN_ASSIGN_OR_RETURN(target->attribute, ExpectAnyName());
  }
  return target;
}

}  // namespace foretoken::jinja
