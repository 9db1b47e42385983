// The chat templates that come with a model: in tokenizer_config.json,
// chat_template.jinja or the metadata of a GGUF file.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_CHAT_TEMPLATE_FILES_H_
#define FORETOKEN_COMMON_TEXT_CHAT_CHAT_TEMPLATE_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/chat/chat_template.h"

namespace foretoken {

struct ChatTemplateSources {
  // Name and source; the one called "default" is first if there is one.
  std::vector<std::pair<std::string, std::string>> templates;
  ChatTokens tokens;

  // The template for a request, as transformers chooses it: "tool_use" for one
  // with tools if there is one, else "default", else the only one. nullptr:
  // none.
  const std::string* Choose(bool has_tools) const;
};

// `path`: a model directory or a GGUF file. A model without templates is no
// error. NotFound for a missing path; InvalidArgument names file and field.
absl::StatusOr<ChatTemplateSources> FindChatTemplates(const std::string& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_CHAT_TEMPLATE_FILES_H_
