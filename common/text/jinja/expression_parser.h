// ExpressionParser: expressions of a template, and the targets of assignments.
// Depth is bounded, so that neither parsing, evaluating nor releasing a tree
// can exhaust the stack.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_EXPRESSION_PARSER_H_
#define FORETOKEN_COMMON_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/token_stream.h"

namespace foretoken::jinja {

struct OperatorName {
  absl::string_view text;
  Op op;
};

class ExpressionParser : protected TokenStream {
 public:
  using ExprOr = absl::StatusOr<ExprPtr>;
  // Brackets, unary operators and blocks within each other.
  static constexpr int kMaxNesting = 100;
  // Levels of an expression's tree, which long sums also make deep.
  static constexpr int kMaxExprDepth = 250;

  explicit ExpressionParser(std::vector<Token> tokens)
      : TokenStream(std::move(tokens)) {}

  ExprOr ParseExpression();
  // Expressions with commas between them are a tuple, one alone is itself.
  ExprOr ParseTuple(Names end, bool in_parentheses = false,
                    bool with_condition = true);
  // After the bar; `operand` is null for the text of a block.
  ExprOr ParseFilter(ExprPtr operand);
  // Names, tuples of targets and, for a set, attributes of a namespace.
  ExprOr ParseTarget(Names end, bool with_namespace);
  ExprOr ParseOneTarget(bool with_namespace);

 protected:
  // Counts a level of recursion while it lives.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }

   private:
    int& depth_;
  };

  absl::Status CheckDepth() const {
    return depth_ > kMaxNesting ? Fail("nested too deep") : absl::OkStatus();
  }

  int depth_ = 0;
  Stmt* macro_ = nullptr;  // whose body is being parsed

 private:
  template <typename... Children>
  ExprOr Node(Expr::Kind kind, int line, Children... children) const;
  std::optional<Op> FindOp(absl::Span<const OperatorName> ops) const;
  // Operators of one precedence, from the left.
  ExprOr ParseBinary(absl::Span<const OperatorName> ops,
                     ExprOr (ExpressionParser::*operand)());
  // Sets the depth of a node whose parts are complete.
  ExprOr Done(ExprPtr expr) const;
  ExprOr Constant(Value value, int line) const;
  ExprOr ParseOr();
  ExprOr ParseAnd();
  ExprOr ParseNot();
  ExprOr ParseCompare();
  ExprOr ParseSum();
  ExprOr ParseProduct();
  ExprOr ParsePower();
  ExprOr ParseConcat();
  // A unary expression with its filters and tests.
  ExprOr ParseFiltered();
  ExprOr ParseUnary();
  ExprOr ParsePrimary();
  bool IsTupleEnd(Names end) const;
  ExprOr ParseList(int line);
  ExprOr ParseDict(int line);
  ExprOr ParsePostfix(ExprPtr expr);
  ExprOr ParseSubscript(ExprPtr object, int line);
  // Appends the arguments in parentheses.
  absl::Status ParseArguments(Expr& call);
  ExprOr ParseCall(ExprPtr callee);
  ExprOr ParseTest(ExprPtr operand);
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_EXPRESSION_PARSER_H_
