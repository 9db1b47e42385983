#include "common/text/jinja/interpreter.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/methods.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/python_text.h"
#include "common/text/jinja/tests.h"

namespace foretoken::jinja {

using Kind = Value::Kind;

namespace {

// Maximum length of the message of raise_exception().
constexpr size_t kMaxRaisedBytes = 4096;

}  // namespace

// Enters a scope inside the current one, or inside `parent`, and leaves it on
// destruction. A macro's scope lies inside that of its definition, not that of
// its call, hence `parent`. The arena frees a scope on release unless a macro
// defined in it may still be called.
class Interpreter::InnerScope {
 public:
  explicit InnerScope(Interpreter& interpreter)
      : InnerScope(interpreter, interpreter.scope_) {}
  InnerScope(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    interpreter.scope_ = interpreter.arena_.NewScope(parent);
  }
  ~InnerScope() {
    interpreter_.arena_.Release(interpreter_.scope_);
    interpreter_.scope_ = outer_;
  }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* const outer_;
};

absl::StatusOr<Text> Interpreter::Run(const Body& body,
                                      const Variables& variables) {
  TextBuilder out(budget_);
  out_ = &out;
  scope_ = arena_.NewScope(nullptr);
  for (const auto& [name, value] : variables) {
    const absl::Status spent = budget_.Spend(1, kVariableBytes);
    if (!spent.ok()) return OfRendering(spent);
    scope_->Set(name, value, budget_);
  }
  const FlowOr flow = Execute(body);
  absl::Status status = flow.status();
  if (status.ok() && *flow != Flow::kNext) {
    status = absl::InvalidArgumentError("break or continue outside of a loop");
  }
  if (!status.ok()) return OfRendering(status);
  absl::StatusOr<Text> text = out.Finish();
  if (!text.ok()) return OfRendering(text.status());
  return text;
}

absl::Status Interpreter::OfRendering(const absl::Status& status) const {
  // raise_exception() speaks to the caller in the template's own words, without
  // a line number. A refused budget comes before the error it led to: code that
  // ran into it may have reported another one.
  if (raised_) return status;
  if (!budget_.refused().ok()) return budget_.refused();
  return absl::InvalidArgumentError(absl::StrCat("chat template: line ",
                                                 std::max(error_line_, 1), ": ",
                                                 status.message()));
}

// --- statements -------------------------------------------------------------

Interpreter::FlowOr Interpreter::Execute(const Body& body) {
  for (const auto& stmt : body) {
    FORETOKEN_ASSIGN_OR_RETURN(const Flow flow, Execute(*stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::FlowOr Interpreter::Execute(const Stmt& stmt) {
  FlowOr flow = Flow::kNext;
  // The parser bounds the depth of an expression, but macros may call each
  // other; this bounds the interpreter's recursion.
  if (++depth_ > options_.limits.max_depth) {
    flow = absl::InvalidArgumentError("nested too deep");
  } else if (absl::Status spent = budget_.Spend(1); !spent.ok()) {
    flow = std::move(spent);
  } else {
    flow = ExecuteKind(stmt);
  }
  --depth_;
  // The innermost statement or expression names the line: it sees the error
  // first, on the way out.
  if (!flow.ok() && error_line_ == 0) error_line_ = stmt.line;
  return flow;
}

Interpreter::FlowOr Interpreter::ExecuteKind(const Stmt& stmt) {
  absl::Status status;
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      status = Write(stmt.text);
      break;
    case Stmt::Kind::kPrint:
      status = Print(stmt);
      break;
    case Stmt::Kind::kIf:
      return ExecuteIf(stmt);
    case Stmt::Kind::kFor:
      return ExecuteFor(stmt);
    case Stmt::Kind::kSet:
      status = Set(stmt);
      break;
    case Stmt::Kind::kSetBlock:
      status = SetBlock(stmt);
      break;
    case Stmt::Kind::kMacro:
      status = DefineMacro(stmt);
      break;
    case Stmt::Kind::kCallBlock:
      status = CallBlock(stmt);
      break;
    case Stmt::Kind::kFilterBlock:
      status = FilterBlock(stmt);
      break;
    case Stmt::Kind::kWith:
      return With(stmt);
    case Stmt::Kind::kScope:
      return ExecuteScope(stmt.bodies[0]);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return status;
  return Flow::kNext;
}

absl::Status Interpreter::Write(const Text& text) {
  out_->Append(text);
  // out_ may be a capture of a macro or set block, which is bounded alike.
  if (out_->size() > static_cast<size_t>(options_.limits.max_output_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output of more than ", options_.limits.max_output_bytes, " bytes"));
  }
  return budget_.status();
}

absl::Status Interpreter::Print(const Stmt& stmt) {
  for (const ExprPtr& expr : stmt.exprs) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr));
    // The common case, without ToText's copy.
    if (value.IsString()) {
      FORETOKEN_RETURN_IF_ERROR(Write(value.text()));
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(budget_, value));
    FORETOKEN_RETURN_IF_ERROR(Write(text));
  }
  return absl::OkStatus();
}

Interpreter::FlowOr Interpreter::ExecuteIf(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value test, Evaluate(*stmt.exprs[i]));
    if (test.Truthy()) return Execute(stmt.bodies[i]);
  }
  // One body more than conditions: that of `else`.
  if (stmt.bodies.size() > stmt.exprs.size()) {
    return Execute(stmt.bodies.back());
  }
  return Flow::kNext;
}

Interpreter::FlowOr Interpreter::ExecuteScope(const Body& body) {
  const InnerScope scope(*this);
  return Execute(body);
}

Interpreter::FlowOr Interpreter::ExecuteFor(const Stmt& stmt) {
  FORETOKEN_ASSIGN_OR_RETURN(const Value source, Evaluate(*stmt.exprs[0]));
  FORETOKEN_ASSIGN_OR_RETURN(Values items, Iterate(budget_, source));
  // The condition of `for ... if` is asked of all items before the first turn:
  // loop.length and loop.last count the items that passed. A `loop` in it
  // is that of an outer loop.
  if (stmt.exprs[1] != nullptr) {
    Values passed;
    for (Value& item : items) {
      const InnerScope scope(*this);
      FORETOKEN_RETURN_IF_ERROR(Assign(*stmt.target, item));
      FORETOKEN_ASSIGN_OR_RETURN(const Value test, Evaluate(*stmt.exprs[1]));
      if (test.Truthy()) passed.push_back(std::move(item));
    }
    items = std::move(passed);
  }
  // bodies[1] is the `else` of a loop, empty without one. jinja2 runs it when
  // there were no items, unlike Python, which runs it when there was no break.
  if (items.empty()) return ExecuteScope(stmt.bodies[1]);
  const auto loop = std::make_shared<LoopState>(
      std::make_shared<const List>(std::move(items)));
  // A LoopState is a container that values can hold (`loop` may be assigned):
  // it counts as a level.
  if (loop->nesting() > Value::kMaxNesting) {
    return absl::InvalidArgumentError("values nested too deep");
  }
  for (const Value& item : loop->items()) {
    // An empty body spends nothing itself.
    FORETOKEN_RETURN_IF_ERROR(budget_.Spend(1));
    // Each iteration has its own scope: as in jinja2, a variable set in one is
    // unknown in the next.
    const InnerScope scope(*this);
    scope_->Set("loop", Value::Of(loop), budget_);
    FORETOKEN_RETURN_IF_ERROR(Assign(*stmt.target, item));
    FORETOKEN_ASSIGN_OR_RETURN(const Flow flow, Execute(stmt.bodies[0]));
    // kContinue needs nothing: the body has returned, and the next turn begins.
    if (flow == Flow::kBreak) break;
    loop->Advance();
  }
  return Flow::kNext;
}

absl::Status Interpreter::Set(const Stmt& stmt) {
  FORETOKEN_ASSIGN_OR_RETURN(Value value, Evaluate(*stmt.exprs[0]));
  return Assign(*stmt.target, std::move(value));
}

absl::Status Interpreter::SetBlock(const Stmt& stmt) {
  FORETOKEN_ASSIGN_OR_RETURN(Value value, Capture(stmt.bodies[0]));
  // {% set x | filter %}: the filters apply to the captured text.
  if (stmt.exprs[0] != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(value, EvaluateFilter(*stmt.exprs[0], &value));
  }
  return Assign(*stmt.target, std::move(value));
}

absl::Status Interpreter::DefineMacro(const Stmt& stmt) {
  FORETOKEN_RETURN_IF_ERROR(
      budget_.Spend(1, sizeof(Macro) + sizeof(Callable) + sizeof(Scope)));
  // The macro keeps the scope it was defined in, where it finds its free names.
  const Macro* const macro = arena_.NewMacro(&stmt, scope_);
  scope_->Set(stmt.name,
              Value::Of(std::make_shared<const Callable>(
                  Callable{macro, Value(), stmt.name, false})),
              budget_);
  return absl::OkStatus();
}

absl::Status Interpreter::CallBlock(const Stmt& stmt) {
  FORETOKEN_RETURN_IF_ERROR(
      budget_.Spend(1, sizeof(Macro) + sizeof(Callable) + sizeof(Scope)));
  // The body of {% call %} is a macro named `caller`, which the called macro
  // may call.
  const Macro* const macro = arena_.NewMacro(&stmt, scope_);
  const Value caller = Value::Of(std::make_shared<const Callable>(
      Callable{macro, Value(), stmt.name, false}));
  FORETOKEN_ASSIGN_OR_RETURN(const Value value,
                             EvaluateCall(*stmt.exprs[0], &caller));
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(budget_, value));
  return Write(text);
}

absl::Status Interpreter::FilterBlock(const Stmt& stmt) {
  FORETOKEN_ASSIGN_OR_RETURN(Value value, Capture(stmt.bodies[0]));
  FORETOKEN_ASSIGN_OR_RETURN(value, EvaluateFilter(*stmt.exprs[0], &value));
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(budget_, value));
  return Write(text);
}

Interpreter::FlowOr Interpreter::With(const Stmt& stmt) {
  // Evaluate all values before the scope begins: they do not see each other's
  // names (jinja2 2.9 and later).
  Values values;
  for (const ExprPtr& expr : stmt.exprs) {
    FORETOKEN_ASSIGN_OR_RETURN(Value value, Evaluate(*expr));
    values.push_back(std::move(value));
  }
  const InnerScope scope(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    FORETOKEN_RETURN_IF_ERROR(Assign(*stmt.targets[i], std::move(values[i])));
  }
  return Execute(stmt.bodies[0]);
}

absl::Status Interpreter::Assign(const Expr& target, Value value) {
  if (target.kind == Expr::Kind::kName) {
    scope_->Set(target.name, std::move(value), budget_);
    return absl::OkStatus();
  }
  if (target.kind == Expr::Kind::kNamespaceTarget) {
    // Namespaces alone carry a value out of a loop or block; jinja2 has no
    // other assignment to an outer scope.
    const Value* const found = scope_->Find(target.name, budget_);
    if (found == nullptr || !found->Is(Kind::kNamespace)) {
      return absl::InvalidArgumentError(
          "cannot assign attribute on non-namespace object");
    }
    found->ns()->Set(target.attribute, std::move(value));
    return budget_.Spend(NameSteps(found->ns()->attributes.size()),
                         target.attribute.size());
  }
  FORETOKEN_ASSIGN_OR_RETURN(Values items, Iterate(budget_, value));
  if (items.size() != target.children.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot unpack ", items.size(), " values into ",
                     target.children.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    FORETOKEN_RETURN_IF_ERROR(Assign(*target.children[i], std::move(items[i])));
  }
  return absl::OkStatus();
}

Interpreter::ValueOr Interpreter::Capture(const Body& body) {
  TextBuilder captured(budget_);
  // out_ is restored on every path, since `captured` ends with this call.
  TextBuilder* const outer = std::exchange(out_, &captured);
  const FlowOr flow = ExecuteScope(body);
  out_ = outer;
  if (!flow.ok()) return flow.status();
  // A macro or block cannot leave a loop outside of it.
  if (*flow != Flow::kNext) {
    return absl::InvalidArgumentError("break or continue outside of a loop");
  }
  return captured.FinishValue();
}

// --- expressions ------------------------------------------------------------

Interpreter::ValueOr Interpreter::Evaluate(const Expr& expr) {
  ValueOr value = Value();
  if (++depth_ > options_.limits.max_depth) {
    value = absl::InvalidArgumentError("nested too deep");
  } else if (absl::Status spent = budget_.Spend(1); !spent.ok()) {
    value = std::move(spent);
  } else {
    value = EvaluateKind(expr);
  }
  --depth_;
  if (!value.ok() && error_line_ == 0) error_line_ = expr.line;
  return value;
}

Interpreter::ValueOr Interpreter::EvaluateKind(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.constant;
    case Expr::Kind::kName:
      return EvaluateName(expr);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return EvaluateItems(expr);
    case Expr::Kind::kDict:
      return EvaluateDict(expr);
    case Expr::Kind::kUnary:
    case Expr::Kind::kBinary:
    case Expr::Kind::kAttribute:
    case Expr::Kind::kItem:
      return EvaluateOperator(expr);
    case Expr::Kind::kNot:
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
    case Expr::Kind::kCondition:
      return EvaluateLogic(expr);
    case Expr::Kind::kCompare:
      return EvaluateCompare(expr);
    case Expr::Kind::kConcat:
      return EvaluateConcat(expr);
    case Expr::Kind::kSlice:
      return EvaluateSlice(expr);
    case Expr::Kind::kCall:
      return EvaluateCall(expr, nullptr);
    case Expr::Kind::kFilter:
      return EvaluateFilter(expr, nullptr);
    case Expr::Kind::kTest:
      return EvaluateTest(expr);
    case Expr::Kind::kNamespaceTarget:
      break;
  }
  return absl::InvalidArgumentError("not an expression");
}

Interpreter::ValueOr Interpreter::EvaluateName(const Expr& expr) {
  const Value* const found = scope_->Find(expr.name, budget_);
  if (found != nullptr) return *found;
  // Variables hide functions: `range` may be the name of one.
  if (!IsFunction(expr.name)) {
    return Value::Undefined(absl::StrCat("'", expr.name, "' is undefined"));
  }
  FORETOKEN_RETURN_IF_ERROR(budget_.Spend(0, sizeof(Callable)));
  return Value::Of(std::make_shared<const Callable>(
      Callable{nullptr, Value(), expr.name, /*method=*/false}));
}

Interpreter::ValueOr Interpreter::EvaluateItems(const Expr& expr) {
  Values items;
  for (const ExprPtr& child : expr.children) {
    FORETOKEN_ASSIGN_OR_RETURN(Value item, Evaluate(*child));
    items.push_back(std::move(item));
  }
  return expr.kind == Expr::Kind::kList ? MakeList(budget_, std::move(items))
                                        : MakeTuple(budget_, std::move(items));
}

Interpreter::ValueOr Interpreter::EvaluateDict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    FORETOKEN_ASSIGN_OR_RETURN(Value key, Evaluate(*expr.children[i]));
    FORETOKEN_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[i + 1]));
    FORETOKEN_RETURN_IF_ERROR(
        SetKey(budget_, dict, std::move(key), std::move(value)));
  }
  return MakeDict(budget_, std::move(dict));
}

Interpreter::ValueOr Interpreter::EvaluateOperator(const Expr& expr) {
  FORETOKEN_ASSIGN_OR_RETURN(const Value first, Evaluate(*expr.children[0]));
  if (expr.kind == Expr::Kind::kUnary) return Unary(expr.op, first);
  if (expr.kind == Expr::Kind::kAttribute) {
    return GetAttribute(budget_, first, expr.name);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Value second, Evaluate(*expr.children[1]));
  return expr.kind == Expr::Kind::kItem
             ? GetItem(budget_, first, second)
             : Arithmetic(budget_, expr.op, first, second);
}

Interpreter::ValueOr Interpreter::EvaluateLogic(const Expr& expr) {
  FORETOKEN_ASSIGN_OR_RETURN(Value first, Evaluate(*expr.children[0]));
  // `and` and `or` give one of their operands, not a truth value, and leave the
  // second alone where the first decides: `x is defined and x.y`.
  const bool truthy = first.Truthy();
  switch (expr.kind) {
    case Expr::Kind::kNot:
      return Value::Bool(!truthy);
    case Expr::Kind::kAnd:
      if (!truthy) return first;
      return Evaluate(*expr.children[1]);
    case Expr::Kind::kOr:
      if (truthy) return first;
      return Evaluate(*expr.children[1]);
    default:
      break;
  }
  // A condition: children[1] if it holds, children[2] (null: no else) if not.
  const ExprPtr& branch = expr.children[truthy ? 1 : 2];
  if (branch != nullptr) return Evaluate(*branch);
  return Value::Undefined(
      "the inline if-expression evaluated to false and no else section was "
      "defined");
}

Interpreter::ValueOr Interpreter::EvaluateCompare(const Expr& expr) {
  FORETOKEN_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.children[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(Value right, Evaluate(*expr.children[i + 1]));
    FORETOKEN_ASSIGN_OR_RETURN(const bool holds,
                               Compare(budget_, expr.ops[i], left, right));
    // a < b < c: b is evaluated once, and c only if a < b.
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Interpreter::ValueOr Interpreter::EvaluateConcat(const Expr& expr) {
  TextBuilder out(budget_);
  for (const ExprPtr& child : expr.children) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value value, Evaluate(*child));
    FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(budget_, value));
    out.Append(text);
  }
  return out.FinishValue();
}

Interpreter::ValueOr Interpreter::EvaluateSlice(const Expr& expr) {
  Values parts;
  for (const ExprPtr& child : expr.children) {
    Value part = Value::None();
    if (child != nullptr) {
      FORETOKEN_ASSIGN_OR_RETURN(part, Evaluate(*child));
    }
    parts.push_back(std::move(part));
  }
  return GetSlice(budget_, parts[0], parts[1], parts[2], parts[3]);
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const Expr& call) {
  Arguments arguments;
  // children[0] is what is called, or what a filter or test is applied to.
  for (size_t i = 1; i < call.children.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(Value value, Evaluate(*call.children[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : call.keywords) {
    FORETOKEN_ASSIGN_OR_RETURN(Value value, Evaluate(*expr));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Interpreter::ValueOr Interpreter::EvaluateFilter(const Expr& expr,
                                                 const Value* piped) {
  // The innermost filter of a filter block has no operand: its input is
  // `piped`, the text of the block, which every filter of the chain passes on.
  const ExprPtr& operand = expr.children[0];
  Value value;
  if (operand == nullptr) {
    value = *piped;
  } else if (piped != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(value, EvaluateFilter(*operand, piped));
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(value, Evaluate(*operand));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Arguments arguments,
                             EvaluateArguments(expr));
  return CallFilter(budget_, expr.name, value, arguments);
}

Interpreter::ValueOr Interpreter::EvaluateTest(const Expr& expr) {
  FORETOKEN_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0]));
  FORETOKEN_ASSIGN_OR_RETURN(const Arguments arguments,
                             EvaluateArguments(expr));
  FORETOKEN_ASSIGN_OR_RETURN(const bool holds,
                             CallTest(budget_, expr.name, value, arguments));
  return Value::Bool(holds);
}

Interpreter::ValueOr Interpreter::EvaluateCall(const Expr& expr,
                                               const Value* caller) {
  FORETOKEN_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expr.children[0]));
  FORETOKEN_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expr));
  // After the arguments, whose own errors Python reports first.
  if (callee.Is(Kind::kUndefined)) return callee.UndefinedError();
  if (!callee.Is(Kind::kCallable)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", callee.TypeName(), "' object is not callable"));
  }
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  const Callable& callable = callee.callable();
  if (callable.macro != nullptr) return CallMacro(*callable.macro, arguments);
  if (callable.method) {
    return CallMethod(budget_, callable.receiver, callable.name, arguments);
  }
  return CallFunction(callable.name, arguments);
}

Interpreter::ValueOr Interpreter::CallFunction(absl::string_view name,
                                               const Arguments& arguments) {
  if (name == "range") return MakeRange(budget_, arguments);
  if (name == "dict") return MakeDictionary(budget_, arguments);
  if (name == "namespace") return MakeNamespace(budget_, arena_, arguments);
  // Two functions are left, of one argument each: raise_exception and
  // strftime_now.
  const bool raises = name == "raise_exception";
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind(name, arguments, {raises ? "message" : "format"},
                           1));
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(budget_, bound[0]));
  if (raises) {
    raised_ = true;
    return absl::InvalidArgumentError(
        text.size() <= kMaxRaisedBytes
            ? text.bytes()
            : absl::StrCat(Shown(text.bytes()), "..."));
  }
  FORETOKEN_ASSIGN_OR_RETURN(Text time,
                             FormatTime(text, options_.now, options_.zone));
  return MakeString(budget_, std::move(time));
}

absl::Status Interpreter::BindParameters(const Stmt& definition,
                                         const Arguments& arguments) {
  const size_t given = arguments.positional.size();
  // Binds positional arguments first, then named ones, then defaults; what is
  // left goes to varargs and kwargs, if the body reads them (the parser knows),
  // and is an error otherwise.
  std::vector<bool> used(arguments.named.size());
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const Parameter& parameter = definition.parameters[i];
    FORETOKEN_RETURN_IF_ERROR(
        budget_.Spend(1 + NameSteps(arguments.named.size())));
    Value value = Value::Undefined(
        absl::StrCat("parameter '", parameter.name, "' was not provided"));
    bool found = i < given;
    if (found) value = arguments.positional[i];
    for (size_t n = 0; !found && n < arguments.named.size(); ++n) {
      if (arguments.named[n].first != parameter.name) continue;
      value = arguments.named[n].second;
      found = used[n] = true;
    }
    // Defaults are evaluated in the macro's scope, at every call, so that one
    // may use the parameters before it.
    if (!found && parameter.otherwise != nullptr) {
      FORETOKEN_ASSIGN_OR_RETURN(value, Evaluate(*parameter.otherwise));
    }
    scope_->Set(parameter.name, std::move(value), budget_);
  }
  Dict rest;
  for (size_t n = 0; n < arguments.named.size(); ++n) {
    const auto& [name, value] = arguments.named[n];
    if (used[n]) continue;
    // Set by a call block; a macro need not name it as a parameter.
    if (name == "caller") {
      scope_->Set("caller", value, budget_);
    } else if (definition.uses_kwargs) {
      FORETOKEN_RETURN_IF_ERROR(
          SetKey(budget_, rest, Value::String(name), value));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("macro '", definition.name,
                       "' takes no keyword argument '", name, "'"));
    }
  }
  if (definition.uses_kwargs) {
    FORETOKEN_ASSIGN_OR_RETURN(Value kwargs,
                               MakeDict(budget_, std::move(rest)));
    scope_->Set("kwargs", std::move(kwargs), budget_);
  }
  const size_t wanted = definition.parameters.size();
  if (definition.uses_varargs) {
    Values more;
    for (size_t i = wanted; i < given; ++i) {
      more.push_back(arguments.positional[i]);
    }
    FORETOKEN_ASSIGN_OR_RETURN(Value varargs,
                               MakeTuple(budget_, std::move(more)));
    scope_->Set("varargs", std::move(varargs), budget_);
  } else if (given > wanted) {
    return absl::InvalidArgumentError(absl::StrCat("macro '", definition.name,
                                                   "' takes not more than ",
                                                   wanted, " argument(s)"));
  }
  return absl::OkStatus();
}

Interpreter::ValueOr Interpreter::CallMacro(const Macro& macro,
                                            const Arguments& arguments) {
  const InnerScope scope(*this, macro.scope);
  FORETOKEN_RETURN_IF_ERROR(BindParameters(*macro.definition, arguments));
  return Capture(macro.definition->bodies[0]);
}

}  // namespace foretoken::jinja
