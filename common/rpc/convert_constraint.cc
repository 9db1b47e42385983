// Conversion of constraints.
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "common/grammar/compile.h"
#include "common/grammar/constraint.h"
#include "common/grammar/thinking.h"
#include "common/rpc/convert.h"

namespace foretoken::rpc {
namespace {

void ToProto(const Thinking::Tag& tag, v1::ThinkingTag* proto) {
  if (tag.is_control) {
    proto->set_control(tag.text);
  } else {
    proto->set_text(tag.text);
  }
}

Thinking::Tag FromProto(v1::ThinkingTag* proto) {
  return proto->has_control()
             ? Thinking::Tag{std::move(*proto->mutable_control()), true}
             : Thinking::Tag{std::move(*proto->mutable_text()), false};
}

absl::StatusOr<Thinking> FromProto(v1::Thinking* proto) {
  Thinking thinking;
  if (proto->has_open()) thinking.open = FromProto(proto->mutable_open());
  thinking.close = FromProto(proto->mutable_close());
  thinking.opened = proto->opened();
  FORETOKEN_RETURN_IF_ERROR(
      Annotate(grammar::CheckThinking(thinking), "constraint"));
  return thinking;
}

// Reads the constraint, but for its thinking.
absl::Status ReadKind(v1::Constraint& proto, Constraint& constraint) {
  switch (proto.kind_case()) {
    case v1::Constraint::kJsonSchema:
      constraint.kind = Constraint::Kind::kJsonSchema;
      constraint.source = std::move(*proto.mutable_json_schema());
      return absl::OkStatus();
    case v1::Constraint::kJsonObject:
      if (!proto.json_object()) {
        return absl::InvalidArgumentError(
            "constraint: json_object is false, want true or no constraint");
      }
      constraint.kind = Constraint::Kind::kJsonObject;
      return absl::OkStatus();
    case v1::Constraint::kRegex:
      constraint.kind = Constraint::Kind::kRegex;
      constraint.source = std::move(*proto.mutable_regex());
      return absl::OkStatus();
    case v1::Constraint::kGrammar:
      constraint.kind = Constraint::Kind::kGrammar;
      constraint.source = std::move(*proto.mutable_grammar());
      return absl::OkStatus();
    case v1::Constraint::kChoice:
      FORETOKEN_RETURN_IF_ERROR(CheckSize("constraint: choice",
                                          proto.choice().texts_size(),
                                          grammar::CompileLimits().choices));
      constraint.kind = Constraint::Kind::kChoice;
      for (std::string& text : *proto.mutable_choice()->mutable_texts()) {
        constraint.choices.push_back(std::move(text));
      }
      return absl::OkStatus();
    case v1::Constraint::kToolCalls:
      constraint.kind = Constraint::Kind::kToolCalls;
      constraint.source = std::move(*proto.mutable_tool_calls());
      return absl::OkStatus();
    case v1::Constraint::kStructuralTag:
      constraint.kind = Constraint::Kind::kStructuralTag;
      constraint.source = std::move(*proto.mutable_structural_tag());
      return absl::OkStatus();
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "constraint: want json_schema, json_object, regex, grammar, choice, "
      "tool_calls or structural_tag");
}

}  // namespace

void ToProto(const Constraint& constraint, v1::Constraint* proto) {
  switch (constraint.kind) {
    case Constraint::Kind::kNone:
      break;
    case Constraint::Kind::kJsonSchema:
      proto->set_json_schema(constraint.source);
      break;
    case Constraint::Kind::kJsonObject:
      proto->set_json_object(true);
      break;
    case Constraint::Kind::kRegex:
      proto->set_regex(constraint.source);
      break;
    case Constraint::Kind::kGrammar:
      proto->set_grammar(constraint.source);
      break;
    case Constraint::Kind::kToolCalls:
      proto->set_tool_calls(constraint.source);
      break;
    case Constraint::Kind::kStructuralTag:
      proto->set_structural_tag(constraint.source);
      break;
    case Constraint::Kind::kChoice: {
      // Also without a choice: the receiver says what is wrong with that.
      v1::Choices* const choices = proto->mutable_choice();
      for (const std::string& choice : constraint.choices) {
        choices->add_texts(choice);
      }
      break;
    }
  }
  if (constraint.thinking.empty()) return;
  v1::Thinking* const thinking = proto->mutable_thinking();
  ToProto(constraint.thinking.open, thinking->mutable_open());
  ToProto(constraint.thinking.close, thinking->mutable_close());
  thinking->set_opened(constraint.thinking.opened);
}

absl::StatusOr<Constraint> FromProto(v1::Constraint proto) {
  Constraint constraint;
  FORETOKEN_RETURN_IF_ERROR(ReadKind(proto, constraint));
  if (proto.has_thinking()) {
    FORETOKEN_ASSIGN_OR_RETURN(constraint.thinking,
                               FromProto(proto.mutable_thinking()));
  }
  return constraint;
}

}  // namespace foretoken::rpc
