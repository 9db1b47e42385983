#include "services/gateway/core/message_thinking.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/generation_fields.h"
#include "services/gateway/core/message_blocks.h"

namespace foretoken::gateway {
namespace {

constexpr char kField[] = "thinking";
constexpr size_t kMaxTypeBytes = 64;

// Either is the name of the variable in some templates; others read none.
void SetVariables(bool on, RequestFields& fields, ApiRequest& request) {
  std::string& variables = request.conversation->variables;
  const std::string wanted = on ? "true" : "false";
  std::string set =
      absl::StrCat("{\"enable_thinking\":", wanted, ",\"thinking\":", wanted);
  if (!variables.empty()) {
    const Json* const given = fields.Find("chat_template_kwargs");
    if (given->contains("enable_thinking") || given->contains("thinking")) {
      fields.Fail(FieldError(kField,
                             "chat_template_kwargs says it as well, want one "
                             "of them",
                             "invalid_value"));
      return;
    }
    // An object, as the body spells it.
    if (!given->empty()) {
      absl::StrAppend(&set, ",", variables.substr(variables.find('{') + 1));
      variables = std::move(set);
      return;
    }
  }
  variables = absl::StrCat(set, "}");
}

void ReadBudget(RequestFields& thinking, const ApiRequest& request) {
  const std::optional<int64_t> budget =
      thinking.Int("budget_tokens", {1, kMostTokens});
  if (!budget.has_value()) {
    thinking.Fail(FieldError(thinking.Name("budget_tokens"), "is required",
                             "missing_required_parameter"));
    return;
  }
  // Anthropic wants a budget below max_tokens.
  if (!request.max_tokens.has_value() || *budget + 1 >= *request.max_tokens) {
    return;
  }
  thinking.Fail(
      Unsupported(thinking.Name("budget_tokens"),
                  absl::StrCat("thinking has no budget of its own here, want ",
                               *request.max_tokens - 1,
                               " (max_tokens - 1), or the type adaptive")));
}

}  // namespace

void ReadMessageThinking(RequestFields& fields, ApiRequest& request) {
  const Json* const value = fields.Find(kField);
  if (value == nullptr) return;
  RequestFields thinking(*value, kField);
  const std::string type = thinking.Text("type", kMaxTypeBytes).value_or("");
  if (type == "enabled") {
    ReadBudget(thinking, request);
    request.message_thinking = MessageThinking::kOn;
  } else if (type == "disabled") {
    request.message_thinking = MessageThinking::kOff;
  } else if (type != "adaptive") {
    thinking.Fail(Unsupported(thinking.Name("type"),
                              "want adaptive, enabled or disabled"));
  }
  if (type != "disabled") {
    // Thinking is shown as it is: nothing summarises it.
    AllowOnly(thinking, "display", {"summarized"}, "summarized");
  }
  fields.Fail(thinking.Finish());
  if (request.message_thinking == MessageThinking::kNone) return;
  SetVariables(request.message_thinking == MessageThinking::kOn, fields, request);
}

absl::Status CheckMessageThinking(const ModelChat& chat,
                               const ApiRequest& request) {
  const bool thinks = chat.thinking().has_value();
  switch (request.message_thinking) {
    case MessageThinking::kNone:
      break;
    case MessageThinking::kOn:
      if (thinks && request.thinking != ThinkingStage::kOver) break;
      return Unsupported(kField,
                         thinks ? "this model's chat template does not turn it "
                                  "on, want the type adaptive or disabled"
                                : "this model does not think, want the type "
                                  "adaptive or disabled");
    case MessageThinking::kOff:
      if (!thinks || request.thinking == ThinkingStage::kOver) break;
      return Unsupported(kField,
                         "this model's chat template does not turn it off, "
                         "want the type adaptive or enabled");
  }
  return absl::OkStatus();
}

}  // namespace foretoken::gateway
