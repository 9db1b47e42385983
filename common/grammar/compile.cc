#include "common/grammar/compile.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/gbnf.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/structural_tag.h"
#include "common/grammar/tool_calls.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

absl::StatusOr<Symbol> Add(const Constraint& constraint,
                           GrammarBuilder& builder) {
  switch (constraint.kind) {
    case Constraint::Kind::kJsonSchema: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const JsonSchemaResult result,
          AddJsonSchema(constraint.source, JsonSchemaOptions(), builder));
      return result.root;
    }
    case Constraint::Kind::kJsonObject:
      return AddAnyJson(JsonStyle{.free_whitespace = true}, /*object=*/true,
                        builder);
    case Constraint::Kind::kRegex: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Expr expr,
          ParseRegex(constraint.source, RegexSyntaxOptions(),
                     builder.regexes()));
      return builder.Terminal(expr);
    }
    case Constraint::Kind::kGrammar:
      return AddGbnf(constraint.source, builder);
    case Constraint::Kind::kChoice: {
      std::vector<Expr> choices;
      for (const std::string& choice : constraint.choices) {
        if (choice.empty()) {
          return absl::InvalidArgumentError("choice: an empty text");
        }
        if (!IsValidUtf8(choice)) {
          return absl::InvalidArgumentError("choice: not valid UTF-8");
        }
        choices.push_back(builder.regexes().Literal(choice));
      }
      return builder.Terminal(builder.regexes().Or(choices));
    }
    case Constraint::Kind::kToolCalls:
      return AddToolCalls(constraint.source, builder);
    case Constraint::Kind::kStructuralTag:
      return AddStructuralTag(constraint.source, builder);
    case Constraint::Kind::kNone:
      break;
  }
  return absl::InvalidArgumentError("no constraint");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(
    const Constraint& constraint, const CompileLimits& limits) {
  if (constraint.bytes() > static_cast<size_t>(limits.source_bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the constraint has ", constraint.bytes(),
                     " bytes, want at most ", limits.source_bytes));
  }
  if (constraint.choices.size() > static_cast<size_t>(limits.choices)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the constraint has ", constraint.choices.size(),
                     " choices, want at most ", limits.choices));
  }
  GrammarBuilder builder(limits.grammar);
  FORETOKEN_ASSIGN_OR_RETURN(const Symbol root, Add(constraint, builder));
  FORETOKEN_ASSIGN_OR_RETURN(Grammar grammar, std::move(builder).Build(root));
  return std::make_shared<const Grammar>(std::move(grammar));
}

std::string ConstraintKey(const Constraint& constraint) {
  std::string key =
      absl::StrCat(static_cast<int>(constraint.kind), ":", constraint.source);
  for (const std::string& choice : constraint.choices) {
    absl::StrAppend(&key, choice.size(), ":", choice);
  }
  return key;
}

}  // namespace foretoken::grammar
