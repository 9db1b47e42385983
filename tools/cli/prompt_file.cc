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

absl::StatusOr<FilePrompt> ReadRow(const Json& row, const ChatFormat& chat) {
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
    return chat.Render(row[kMessages]);
  }
  FORETOKEN_ASSIGN_OR_RETURN(prompt.text, StringField(row, kText));
  if (prompt.text->empty()) return WrongField(kText, "a text, have none");
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       const ChatFormat& chat) {
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
