#include "tools/cli/prompt_file.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"

namespace foretoken::cli {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;  // of all prompts of a file

absl::StatusOr<FilePrompt> IdsOf(const Json& ids) {
  constexpr absl::string_view kWant = "a list of token ids, not empty";
  if (!ids.is_array() || ids.empty()) return WrongField("prompt_ids", kWant);
  std::vector<TokenId> prompt;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) return WrongField("prompt_ids", kWant);
    const int64_t value = id.get<int64_t>();
    if (value < 0 || value > std::numeric_limits<TokenId>::max()) {
      return WrongField("prompt_ids", kWant);
    }
    prompt.push_back(static_cast<TokenId>(value));
  }
  return prompt;
}

absl::StatusOr<FilePrompt> ChatText(const Json& messages, ChatTemplate chat) {
  if (chat == ChatTemplate::kNone) {
    return absl::FailedPreconditionError(
        "field \"messages\": the model's chat template is not applied here; "
        "want \"prompt\", or --chat chatml for a model of that template");
  }
  if (!messages.is_array() || messages.empty()) {
    return WrongField("messages", "a list of messages, not empty");
  }
  std::string text;
  for (const Json& message : messages) {
    if (!message.is_object()) return WrongField("messages", "objects");
    FORETOKEN_ASSIGN_OR_RETURN(const std::string role,
                               StringField(message, "role"));
    FORETOKEN_ASSIGN_OR_RETURN(const std::string content,
                               StringField(message, "content"));
    absl::StrAppend(&text, "<|im_start|>", role, "\n", content, "<|im_end|>\n");
  }
  absl::StrAppend(&text, "<|im_start|>assistant\n");
  return text;
}

absl::StatusOr<FilePrompt> PromptOf(const Json& row, ChatTemplate chat) {
  const bool text = row.contains("prompt");
  const bool ids = row.contains("prompt_ids");
  const bool messages = row.contains("messages");
  if (text + ids + messages != 1) {
    return absl::InvalidArgumentError(
        "want exactly one of the fields \"prompt\", \"prompt_ids\" and "
        "\"messages\"");
  }
  if (ids) return IdsOf(row["prompt_ids"]);
  if (messages) return ChatText(row["messages"], chat);
  FORETOKEN_ASSIGN_OR_RETURN(std::string prompt, StringField(row, "prompt"));
  if (prompt.empty()) return WrongField("prompt", "a text, not empty");
  return prompt;
}

size_t BytesOf(const FilePrompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  return std::get<std::vector<TokenId>>(prompt).size() * sizeof(TokenId);
}

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       ChatTemplate chat) {
  std::vector<FilePrompt> prompts;
  size_t bytes = 0;
  const auto add = [&](const Json& row) -> absl::Status {
    FORETOKEN_ASSIGN_OR_RETURN(FilePrompt prompt, PromptOf(row, chat));
    bytes += BytesOf(prompt);
    if (bytes > kMaxBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the prompts have more than ", kMaxBytes, " bytes"));
    }
    prompts.push_back(std::move(prompt));
    return absl::OkStatus();
  };
  FORETOKEN_RETURN_IF_ERROR(ForEachJsonRow(path, add));
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no prompts"));
  }
  return prompts;
}

}  // namespace foretoken::cli
