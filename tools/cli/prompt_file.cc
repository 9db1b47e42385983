#include "tools/cli/prompt_file.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"

namespace foretoken::cli {
namespace {

constexpr char kText[] = "prompt";
constexpr char kIds[] = "prompt_ids";
constexpr char kMessages[] = "messages";

absl::StatusOr<std::vector<TokenId>> ReadIds(const Json& ids) {
  const absl::Status wrong =
      WrongField(kIds, "a list of token ids with at least one");
  if (!ids.is_array() || ids.empty()) return wrong;
  std::vector<TokenId> result;
  result.reserve(ids.size());
  for (const Json& id : ids) {
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() > std::numeric_limits<TokenId>::max()) {
      return wrong;
    }
    result.push_back(id.get<TokenId>());
  }
  return result;
}

absl::StatusOr<std::string> Render(const Json& messages, ChatFormat chat) {
  if (chat == ChatFormat::kNone) {
    return WrongField(kMessages,
                      "--chat chatml to render it, or \"prompt\" with the "
                      "rendered text: chat templates are not evaluated");
  }
  if (!messages.is_array() || messages.empty()) {
    return WrongField(kMessages, "a list with at least one message");
  }
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = absl::StrCat(kMessages, "[", i, "]");
    if (!messages[i].is_object()) return WrongField(where, "an object");
    const absl::StatusOr<std::string> role = StringField(messages[i], "role");
    const absl::StatusOr<std::string> content =
        StringField(messages[i], "content");
    FORETOKEN_RETURN_IF_ERROR(Annotate(role.status(), where));
    FORETOKEN_RETURN_IF_ERROR(Annotate(content.status(), where));
    absl::StrAppend(&text, "<|im_start|>", *role, "\n", *content,
                    "<|im_end|>\n");
  }
  return absl::StrCat(text, "<|im_start|>assistant\n");
}

absl::StatusOr<FilePrompt> ReadRow(const Json& row, ChatFormat chat) {
  int given = 0;
  for (const char* field : {kText, kIds, kMessages}) {
    given += row.contains(field) ? 1 : 0;
  }
  if (given != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", given,
                     " of the fields \"prompt\", \"prompt_ids\" and "
                     "\"messages\", want one"));
  }
  FilePrompt prompt;
  if (row.contains(kIds)) {
    FORETOKEN_ASSIGN_OR_RETURN(prompt.ids, ReadIds(row[kIds]));
    return prompt;
  }
  if (row.contains(kMessages)) {
    FORETOKEN_ASSIGN_OR_RETURN(prompt.text, Render(row[kMessages], chat));
    return prompt;
  }
  FORETOKEN_ASSIGN_OR_RETURN(prompt.text, StringField(row, kText));
  if (prompt.text->empty()) return WrongField(kText, "a text, have none");
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       ChatFormat chat) {
  std::vector<FilePrompt> prompts;
  uint64_t bytes = 0;
  FORETOKEN_RETURN_IF_ERROR(
      ForEachJsonRow(path, [&](const Json& row) -> absl::Status {
        FORETOKEN_ASSIGN_OR_RETURN(FilePrompt prompt, ReadRow(row, chat));
        bytes += prompt.ids.size() * sizeof(TokenId) +
                 prompt.text.value_or("").size();
        if (prompts.size() == kMaxPrompts || bytes > kMaxPromptBytes) {
          return absl::ResourceExhaustedError(
              absl::StrCat("too much, want at most ", kMaxPrompts,
                           " prompts and ", kMaxPromptBytes, " bytes of them"));
        }
        prompts.push_back(std::move(prompt));
        return absl::OkStatus();
      }));
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no prompts"));
  }
  return prompts;
}

}  // namespace foretoken::cli
