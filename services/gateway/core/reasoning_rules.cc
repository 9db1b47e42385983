#include "services/gateway/core/reasoning_rules.h"

#include <array>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/grammar/constraint.h"
#include "common/text/chat/thinking.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

constexpr char kSeparate[] = "separate_reasoning";
constexpr char kFormat[] = "reasoning_format";
constexpr char kInclude[] = "include_reasoning";
constexpr char kEnable[] = "enable_thinking";
// Levels of OpenAI's API.
constexpr char kNone[] = "none";
constexpr std::array<absl::string_view, 6> kEfforts = {
    kNone, "minimal", "low", "medium", "high", "xhigh"};

// Whether the reasoning is separated from the content, by the format's name.
std::optional<bool> ReadFormat(RequestFields& fields) {
  const Json* const format = fields.Find(kFormat);
  if (format == nullptr) return std::nullopt;
  if (*format == "none") return false;
  fields.Refuse(kFormat, {"auto", "deepseek"});
  return true;
}

// Gives the template a variable that chat_template_kwargs must not have with
// another value. `value`: as JSON.
absl::Status SetVariable(const std::string& field, absl::string_view name,
                         const std::string& value, std::string& variables) {
  const absl::string_view given =
      variables.empty() ? "" : RawMember(variables, name);
  // The same value twice is no contradiction.
  if (given == value) return absl::OkStatus();
  if (!given.empty()) {
    return FieldError(field,
                      absl::StrCat("differs from chat_template_kwargs.", name),
                      "invalid_value");
  }
  absl::string_view rest = variables;
  // The JSON is edited as text, so that the order and spelling of the client's
  // variables stay.
  rest.remove_prefix(rest.empty() ? 0 : rest.find('{') + 1);
  rest = absl::StripLeadingAsciiWhitespace(rest);
  variables = absl::StrCat("{\"", name, "\":", value,
                           rest.empty()          ? "}"
                           : rest.front() == '}' ? ""
                                                 : ",",
                           rest);
  return absl::OkStatus();
}

// Lets the model think or not, where its template leaves the choice.
absl::Status SwitchThinking(const ModelChat& chat, bool thinks,
                            const std::string& field, ApiRequest& request) {
  if (!chat.thinking_variable().empty()) {
    return SetVariable(field, chat.thinking_variable(),
                       thinks ? "true" : "false",
                       request.conversation->variables);
  }
  if (chat.thinking().has_value() && !thinks) {
    return Unsupported(field, "this model always thinks");
  }
  // No template reads it: it changes nothing, and the answer says so.
  request.ignored_fields.push_back(field);
  return absl::OkStatus();
}

absl::Status ApplyEffort(const ModelChat& chat, const ThinkingWish& wish,
                         ApiRequest& request) {
  const std::string& field = wish.effort_field;
  const bool none = wish.effort == kNone;
  const bool is_switched = !chat.thinking_variable().empty();
  // The switch before the levels: "none" means the same in both.
  if (none && is_switched) {
    return SwitchThinking(chat, false, field, request);
  }
  if (chat.reads_reasoning_effort()) {
    return SetVariable(field, "reasoning_effort",
                       absl::StrCat("\"", wish.effort, "\""),
                       request.conversation->variables);
  }
  if (none) return SwitchThinking(chat, false, field, request);
  if (chat.thinking().has_value() && wish.effort != wish.default_effort) {
    return Unsupported(
        field,
        absl::StrCat("this model has no levels of reasoning, want ",
                     wish.default_effort, is_switched ? " or none" : ""));
  }
  request.ignored_fields.push_back(field);
  return absl::OkStatus();
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
  ReadEffort("reasoning_effort", fields, request);
  ReadThinkingSwitch(fields, request);
  const bool separate = fields.Bool(kSeparate, true);
  const bool given = fields.Find(kSeparate) != nullptr;
  const std::optional<bool> by_format = ReadFormat(fields);
  // Two fields that say the same may both be there; only a difference is an
  // error.
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

void ReadEffort(const char* field, RequestFields& fields, ApiRequest& request) {
  const Json* const value = fields.Find(field);
  if (value == nullptr) return;
  if (!value->is_string() ||
      !absl::c_linear_search(kEfforts, value->get_ref<const std::string&>())) {
    fields.Fail(
        Unsupported(fields.Name(field),
                    absl::StrCat("want ", absl::StrJoin(kEfforts, ", "))));
    return;
  }
  request.thinking_wish.effort = value->get<std::string>();
  request.thinking_wish.effort_field = fields.Name(field);
}

void ReadThinkingSwitch(RequestFields& fields, ApiRequest& request) {
  if (fields.Find(kEnable) == nullptr) return;
  request.thinking_wish.enabled = fields.Bool(kEnable, true);
  request.thinking_wish.enabled_field = fields.Name(kEnable);
}

absl::Status ApplyThinkingWish(const ModelChat& chat, ApiRequest& request) {
  const ThinkingWish& wish = request.thinking_wish;
  // Two fields from different APIs, which contradict each other.
  if (wish.effort == kNone && wish.enabled == true) {
    return FieldError(
        wish.enabled_field,
        absl::StrCat("is on, but ", wish.effort_field, " is ", kNone),
        "invalid_value");
  }
  if (!wish.effort.empty()) {
    FORETOKEN_RETURN_IF_ERROR(ApplyEffort(chat, wish, request));
  }
  if (!wish.enabled.has_value()) return absl::OkStatus();
  return SwitchThinking(chat, *wish.enabled, wish.enabled_field, request);
}

void AllowThinking(const ModelChat& chat, ApiRequest& request) {
  Constraint& constraint = request.generation.constraint;
  // Only where a constraint would forbid the tags: without one the model thinks
  // as it likes.
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
