#include "services/gateway/core/reasoning_rules.h"

#include <optional>
#include <string>

#include "common/grammar/constraint.h"
#include "common/text/chat/thinking.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

constexpr char kSeparate[] = "separate_reasoning";
constexpr char kFormat[] = "reasoning_format";
constexpr char kInclude[] = "include_reasoning";

// Whether the reasoning is separated from the content, by the format's name.
std::optional<bool> ReadFormat(RequestFields& fields) {
  const Json* const format = fields.Find(kFormat);
  if (format == nullptr) return std::nullopt;
  if (*format == "none") return false;
  fields.Refuse(kFormat, {"auto", "deepseek"});
  return true;
}

Thinking::Tag TagOf(absl::string_view text, const ControlTokens& controls) {
  Thinking::Tag tag;
  tag.text = std::string(text);
  for (const auto& [token, spelling] : controls) {
    tag.is_control = tag.is_control || spelling == text;
  }
  return tag;
}

}  // namespace

void ReadReasoningFields(RequestFields& fields, ApiRequest& request) {
  fields.Refuse("stream_reasoning", {true});
  fields.Refuse("reasoning_in_content", {false});
  fields.Refuse("thinking_forced_open", {false});
  const bool separate = fields.Bool(kSeparate, true);
  const bool given = fields.Find(kSeparate) != nullptr;
  const std::optional<bool> by_format = ReadFormat(fields);
  if (given && by_format.has_value() && *by_format != separate) {
    fields.Fail(FieldError(kFormat, "differs from separate_reasoning",
                           "invalid_value"));
  }
  const bool in_content = !by_format.value_or(separate);
  if (in_content) request.reasoning = ReasoningPlace::kContent;
  if (fields.Bool(kInclude, true)) return;
  if (in_content) {
    fields.Fail(FieldError(
        kInclude, "is false, but another field leaves it in the content",
        "invalid_value"));
  }
  request.reasoning = ReasoningPlace::kNowhere;
}

void AllowThinking(const ModelChat& chat, ApiRequest& request) {
  Constraint& constraint = request.generation.constraint;
  if (constraint.empty() || !chat.thinking().has_value() ||
      request.thinking == ThinkingStage::kOver) {
    return;
  }
  const ThinkingTags& tags = *chat.thinking();
  constraint.thinking.open = TagOf(tags.open, chat.thinking_controls());
  constraint.thinking.close = TagOf(tags.close, chat.thinking_controls());
  constraint.thinking.opened = request.thinking == ThinkingStage::kInside;
}

}  // namespace foretoken::gateway
