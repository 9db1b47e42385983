#include "common/text/chat/tool_call_form.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

constexpr size_t kMaxQuotedBytes = 32;

constexpr absl::string_view kLlama3Controls[] = {"<|python_tag|>"};
constexpr absl::string_view kHermesControls[] = {"<tool_call>", "</tool_call>"};
constexpr absl::string_view kMistralControls[] = {"[TOOL_CALLS]", "[ARGS]",
                                                  "[CALL_ID]"};

}  // namespace

absl::StatusOr<ToolCallForm> ParseToolCallForm(absl::string_view name) {
  if (name == "none") return ToolCallForm::kNone;
  if (name == "llama3") return ToolCallForm::kLlama3;
  if (name == "hermes") return ToolCallForm::kHermes;
  if (name == "mistral") return ToolCallForm::kMistral;
  return absl::InvalidArgumentError(
      absl::StrCat("tool-call form '", name.substr(0, kMaxQuotedBytes),
                   "', want none, llama3, hermes or mistral"));
}

// A template does not name its form; the tokens that it writes around calls
// tell. The most specific comes first.
ToolCallForm ToolCallFormOf(absl::string_view chat_template) {
  if (absl::StrContains(chat_template, "[TOOL_CALLS]")) {
    return ToolCallForm::kMistral;
  }
  // Calls as nested tags (<function=NAME>) are another form.
  if (absl::StrContains(chat_template, "<tool_call>") &&
      !absl::StrContains(chat_template, "<function=")) {
    return ToolCallForm::kHermes;
  }
  // Llama 3.2's JSON form has no tag, but the key "parameters".
  if (absl::StrContains(chat_template, "<|python_tag|>") ||
      (absl::StrContains(chat_template, "<|start_header_id|>") &&
       absl::StrContains(chat_template, "parameters"))) {
    return ToolCallForm::kLlama3;
  }
  return ToolCallForm::kNone;
}

absl::Span<const absl::string_view> ToolCallControls(ToolCallForm form) {
  switch (form) {
    case ToolCallForm::kNone:
      return {};
    case ToolCallForm::kLlama3:
      return kLlama3Controls;
    case ToolCallForm::kHermes:
      return kHermesControls;
    case ToolCallForm::kMistral:
      return kMistralControls;
  }
  return {};
}

}  // namespace foretoken
