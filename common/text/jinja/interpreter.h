// Interpreter: renders a parsed template once. Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_INTERPRETER_H_
#define FORETOKEN_COMMON_TEXT_JINJA_INTERPRETER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/arena.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/template.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

class Interpreter {
 public:
  explicit Interpreter(const RenderOptions& options)
      : options_(options),
        budget_(options.limits, options.reserve, options.may_go_on) {}

  // Once. Errors as Template::Render gives them.
  absl::StatusOr<Text> Run(const Body& body, const Variables& variables);

 private:
  using ValueOr = absl::StatusOr<Value>;
  // Where execution goes on after a statement.
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  using FlowOr = absl::StatusOr<Flow>;

  class InnerScope;

  // The error of a rendering that ended with `status`.
  absl::Status OfRendering(const absl::Status& status) const;

  // Statements: they write to out_.
  FlowOr Execute(const Body& body);
  FlowOr Execute(const Stmt& stmt);
  FlowOr ExecuteKind(const Stmt& stmt);
  FlowOr ExecuteIf(const Stmt& stmt);
  FlowOr ExecuteFor(const Stmt& stmt);
  FlowOr ExecuteScope(const Body& body);
  absl::Status Print(const Stmt& stmt);
  absl::Status Set(const Stmt& stmt);
  absl::Status SetBlock(const Stmt& stmt);
  absl::Status DefineMacro(const Stmt& stmt);
  absl::Status CallBlock(const Stmt& stmt);
  absl::Status FilterBlock(const Stmt& stmt);
  FlowOr With(const Stmt& stmt);
  absl::Status Write(const Text& text);
  absl::Status Assign(const Expr& target, Value value);
  // Output of a body, in a scope of its own.
  ValueOr Capture(const Body& body);

  // Expressions.
  ValueOr Evaluate(const Expr& expr);
  ValueOr EvaluateKind(const Expr& expr);
  ValueOr EvaluateName(const Expr& expr);
  ValueOr EvaluateItems(const Expr& expr);
  ValueOr EvaluateDict(const Expr& expr);
  ValueOr EvaluateOperator(const Expr& expr);
  ValueOr EvaluateLogic(const Expr& expr);
  ValueOr EvaluateCompare(const Expr& expr);
  ValueOr EvaluateConcat(const Expr& expr);
  ValueOr EvaluateSlice(const Expr& expr);
  ValueOr EvaluateCall(const Expr& expr, const Value* caller);
  // `piped`: the text of a block that goes through filters.
  ValueOr EvaluateFilter(const Expr& expr, const Value* piped);
  ValueOr EvaluateTest(const Expr& expr);
  absl::StatusOr<Arguments> EvaluateArguments(const Expr& call);
  ValueOr CallFunction(absl::string_view name, const Arguments& arguments);
  ValueOr CallMacro(const Macro& macro, const Arguments& arguments);
  absl::Status BindParameters(const Stmt& definition,
                              const Arguments& arguments);

  const RenderOptions& options_;
  Budget budget_;
  Arena arena_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  int depth_ = 0;
  int error_line_ = 0;   // of the innermost node that failed; 0: none
  bool raised_ = false;  // the error is one of raise_exception()
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_INTERPRETER_H_
