#include "common/grammar/compile.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/grammar/gbnf.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/structural_tag.h"
#include "common/grammar/thinking.h"
#include "common/grammar/tool_calls.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

absl::StatusOr<Expr> ChoiceOf(absl::Span<const std::string> texts,
                              Regexes& regexes) {
  std::vector<Expr> choices;
  for (const std::string& text : texts) {
    if (text.empty()) {
      return absl::InvalidArgumentError("choice: an empty text");
    }
    if (!IsValidUtf8(text)) {
      return absl::InvalidArgumentError("choice: not valid UTF-8");
    }
    choices.push_back(regexes.Literal(text));
  }
  return regexes.Or(choices);
}

// The whole text of an answer: that of the constraint, and thinking before it.
absl::StatusOr<Symbol> Add(const Constraint& constraint,
                           GrammarBuilder& builder) {
  const Thinking& thinking = constraint.thinking;
  const bool thinks = !thinking.empty();
  if (thinks) FORETOKEN_RETURN_IF_ERROR(CheckThinking(thinking));
  // Patterns and choices describe the whole answer, so space after the thinking
  // would count as theirs.
  const ThinkingSpace space = KeepsSpaceAfterThinking(constraint)
                                  ? ThinkingSpace::kNone
                                  : ThinkingSpace::kAllowed;
  const auto terminal = [&](Expr expr) {
    return thinks ? AddThinkingBeforeTerminal(thinking, expr, space, builder)
                  : builder.Terminal(expr);
  };
  const auto symbol = [&](Symbol text) {
    return thinks ? AddThinkingBefore(thinking, text, space, builder) : text;
  };
  switch (constraint.kind) {
    case Constraint::Kind::kJsonSchema: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const JsonSchemaResult result,
          AddJsonSchema(constraint.source, JsonSchemaOptions(), builder));
      return symbol(result.root);
    }
    case Constraint::Kind::kJsonObject:
      return symbol(AddAnyJson(JsonStyle{.free_whitespace = true},
                               /*object=*/true, builder));
    case Constraint::Kind::kRegex: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Expr expr,
          ParseRegex(constraint.source, RegexSyntaxOptions(),
                     builder.regexes()));
      return terminal(expr);
    }
    case Constraint::Kind::kGrammar: {
      FORETOKEN_ASSIGN_OR_RETURN(const Symbol root,
                                 AddGbnf(constraint.source, builder));
      return symbol(root);
    }
    case Constraint::Kind::kChoice: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Expr expr, ChoiceOf(constraint.choices, builder.regexes()));
      return terminal(expr);
    }
    case Constraint::Kind::kToolCalls: {
      const Expr content = thinks && !thinking.opened
                               ? NotThinking(thinking, builder.regexes())
                               : Regexes::kAnything;
      FORETOKEN_ASSIGN_OR_RETURN(
          const Symbol calls,
          AddToolCalls(constraint.source, builder, content));
      return symbol(calls);
    }
    case Constraint::Kind::kStructuralTag: {
      const Expr first_text = thinks && !thinking.opened
                                  ? NeverThinking(thinking, builder.regexes())
                                  : Regexes::kAnything;
      FORETOKEN_ASSIGN_OR_RETURN(
          const Symbol text,
          AddStructuralTag(constraint.source, builder, first_text));
      return symbol(text);
    }
    case Constraint::Kind::kNone:
      break;
  }
  return absl::InvalidArgumentError("no constraint");
}

// Unambiguous, whatever the tags are.
std::string ThinkingKey(const Thinking& thinking) {
  if (thinking.empty()) return "";
  std::string key = thinking.opened ? "opened" : "thinking";
  for (const Thinking::Tag* tag : {&thinking.open, &thinking.close}) {
    absl::StrAppend(&key, tag->is_control ? "#" : "'", tag->text.size(), ":",
                    tag->text);
  }
  return key;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(
    const Constraint& constraint, const CompileLimits& limits) {
  // Before any work: the size alone can refuse it.
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
      absl::StrCat(static_cast<int>(constraint.kind),
                   ThinkingKey(constraint.thinking), ":", constraint.source);
  for (const std::string& choice : constraint.choices) {
    absl::StrAppend(&key, choice.size(), ":", choice);
  }
  return key;
}

}  // namespace foretoken::grammar
