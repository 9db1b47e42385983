#include "common/text/chat/tool_call_wrapper.h"

#include "absl/strings/match.h"

namespace foretoken {
namespace {

// The line breaks are those of the templates of Hermes, Qwen and Granite.
constexpr ToolCallWrapper kHermes = {
    .begin = "",
    .before_name = "<tool_call>\n{\"name\": \"",
    .before_arguments = "\", \"arguments\": ",
    .after_arguments = "}\n</tool_call>",
    .separator = "\n",
    .end = "",
    .opener = "<tool_call>",
    .first = "",
    .content_before = true};

// Without <|python_tag|>: templates teach the bare object for the functions of
// a request.
constexpr ToolCallWrapper kLlama3 = {.begin = "",
                                     .before_name = "{\"name\": \"",
                                     .before_arguments = "\", \"parameters\": ",
                                     .after_arguments = "}",
                                     .separator = "; ",
                                     .end = "",
                                     .opener = "<|python_tag|>",
                                     .first = "{",
                                     .content_before = false};

constexpr ToolCallWrapper kMistralList = {
    .begin = "[TOOL_CALLS][",
    .before_name = "{\"name\": \"",
    .before_arguments = "\", \"arguments\": ",
    .after_arguments = "}",
    .separator = ", ",
    .end = "]",
    .opener = "[TOOL_CALLS]",
    .first = "",
    .content_before = true};

constexpr ToolCallWrapper kMistralArguments = {.begin = "",
                                               .before_name = "[TOOL_CALLS]",
                                               .before_arguments = "[ARGS]",
                                               .after_arguments = "",
                                               .separator = "",
                                               .end = "",
                                               .opener = "[TOOL_CALLS]",
                                               .first = "",
                                               .content_before = true};

}  // namespace

ToolCallWrapper ToolCallWrapperOf(ToolCallForm form,
                                  absl::string_view chat_template) {
  switch (form) {
    case ToolCallForm::kNone:
      break;
    case ToolCallForm::kLlama3:
      return kLlama3;
    case ToolCallForm::kHermes:
      return kHermes;
    case ToolCallForm::kMistral: {
      if (absl::StrContains(chat_template, "[ARGS]")) return kMistralArguments;
      ToolCallWrapper list = kMistralList;
      // The tokens of the first models have a space there.
      if (absl::StrContains(chat_template, "[TOOL_CALLS] [")) {
        list.begin = "[TOOL_CALLS] [";
      }
      return list;
    }
  }
  return {};
}

}  // namespace foretoken
