#include "common/text/jinja/tests.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/python_text.h"
#include "common/text/jinja/string_methods.h"

namespace foretoken::jinja {
namespace {

using Kind = Value::Kind;

// Predicates of the value alone, without arguments. As in jinja2, True and
// False are numbers but not integers, and strings and dicts are sequences.
bool IsDefined(const Value& v) { return !v.Is(Kind::kUndefined); }
bool IsUndefined(const Value& v) { return v.Is(Kind::kUndefined); }
bool IsNone(const Value& v) { return v.Is(Kind::kNone); }
bool IsBoolean(const Value& v) { return v.Is(Kind::kBool); }
bool IsTrue(const Value& v) { return v.Is(Kind::kBool) && v.integer() != 0; }
bool IsFalse(const Value& v) { return v.Is(Kind::kBool) && v.integer() == 0; }
bool IsInteger(const Value& v) { return v.Is(Kind::kInteger); }
bool IsFloat(const Value& v) { return v.Is(Kind::kFloat); }
bool IsAnyNumber(const Value& v) { return v.IsNumber(); }
bool IsText(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.Is(Kind::kDict); }
bool IsCallable(const Value& v) { return v.Is(Kind::kCallable); }
// Without autoescape no string is Markup.
bool IsEscaped(const Value&) { return false; }
bool IsSequence(const Value& v) {
  return v.IsString() || v.IsSequence() || v.Is(Kind::kDict);
}
bool IsIterable(const Value& v) {
  return IsSequence(v) || v.Is(Kind::kUndefined) || v.Is(Kind::kGenerator) ||
         v.Is(Kind::kLoop);
}

using Predicate = bool (*)(const Value&);

const absl::flat_hash_map<absl::string_view, Predicate>& Predicates() {
  static const auto* const predicates =
      new absl::flat_hash_map<absl::string_view, Predicate>{
          {"boolean", IsBoolean},    {"callable", IsCallable},
          {"defined", IsDefined},    {"escaped", IsEscaped},
          {"false", IsFalse},        {"float", IsFloat},
          {"integer", IsInteger},    {"iterable", IsIterable},
          {"mapping", IsMapping},    {"none", IsNone},
          {"number", IsAnyNumber},   {"sequence", IsSequence},
          {"string", IsText},        {"true", IsTrue},
          {"undefined", IsUndefined}};
  return *predicates;
}

const absl::flat_hash_map<absl::string_view, Op>& Comparisons() {
  static const auto* const comparisons =
      new absl::flat_hash_map<absl::string_view, Op>{
          {"==", Op::kEqual},
          {"eq", Op::kEqual},
          {"equalto", Op::kEqual},
          {"ne", Op::kNotEqual},
          {"!=", Op::kNotEqual},
          {"lt", Op::kLess},
          {"<", Op::kLess},
          {"lessthan", Op::kLess},
          {"le", Op::kLessEqual},
          {"<=", Op::kLessEqual},
          {"gt", Op::kGreater},
          {">", Op::kGreater},
          {"greaterthan", Op::kGreater},
          {"ge", Op::kGreaterEqual},
          {">=", Op::kGreaterEqual},
          {"in", Op::kIn}};
  return *comparisons;
}

absl::StatusOr<bool> HasRemainder(Budget& budget, const Value& value,
                                  const Value& divisor, int64_t remainder) {
  FORETOKEN_ASSIGN_OR_RETURN(const Value rest,
                             Arithmetic(budget, Op::kModulo, value, divisor));
  return Equal(budget, rest, Value::Integer(remainder));
}

// Python's `is`: objects by identity. Scalars have none here and compare by
// kind and value.
absl::StatusOr<bool> IsSame(Budget& budget, const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.IsString()) return &a.text() == &b.text();
  if (a.IsSequence()) return &a.list() == &b.list();
  if (a.Is(Kind::kDict)) return &a.dict() == &b.dict();
  return Equal(budget, a, b);
}

}  // namespace

absl::StatusOr<bool> CallTest(Budget& budget, absl::string_view name,
                              const Value& value, const Arguments& arguments) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(1));
  if (const auto it = Predicates().find(name); it != Predicates().end()) {
    FORETOKEN_RETURN_IF_ERROR(
        BoundArguments::Bind(name, arguments, {}).status());
    return it->second(value);
  }
  if (name == "odd" || name == "even") {
    return HasRemainder(budget, value, Value::Integer(2), name == "odd");
  }
  if (name == "upper" || name == "lower") {
    FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(budget, value));
    FORETOKEN_ASSIGN_OR_RETURN(
        const Value result,
        CallStringMethod(budget, text, absl::StrCat("is", name), {}));
    return result.Truthy();
  }
  // `'name' is filter`: whether a filter of that name exists.
  if (name == "filter" && value.IsString()) {
    FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(value.text().size())));
    return IsFilter(value.text().bytes());
  }
  const auto comparison = Comparisons().find(name);
  const bool known = comparison != Comparisons().end() ||
                     name == "divisibleby" || name == "sameas";
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("no test named '", Shown(name), "'"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto bound, BoundArguments::Bind(name, arguments, {"other"}, 1));
  if (name == "divisibleby") return HasRemainder(budget, value, bound[0], 0);
  if (name == "sameas") return IsSame(budget, value, bound[0]);
  return Compare(budget, comparison->second, value, bound[0]);
}

}  // namespace foretoken::jinja
