#include "tools/cli/chat_format.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"

namespace foretoken::cli {
namespace {

constexpr char kMessages[] = "messages";

absl::StatusOr<std::string> RenderChatMl(const Json& messages) {
  // Written here rather than taken from a template: prompts of a benchmark must
  // not depend on the model that is measured.
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
  // The header of the answer, which the model continues.
  return absl::StrCat(text, "<|im_start|>assistant\n");
}

}  // namespace

absl::StatusOr<ChatFormat> ChatFormat::OfModel(const std::string& model) {
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const ModelChat> chat,
                             ModelChat::Load(model));
  if (!chat->has_template()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--chat auto: ", model, " has no chat template"));
  }
  return ChatFormat(Kind::kModel, std::move(chat));
}

absl::StatusOr<ChatFormat> ChatFormat::Open(const std::string& chat,
                                            const std::string& model) {
  if (chat == "none") return None();
  if (chat == "chatml") return ChatMl();
  if (chat != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("--chat: '", chat, "', want none, chatml or auto"));
  }
  if (model.empty()) {
    return absl::InvalidArgumentError(
        "--chat auto: wants --tokenizer, the model of the server, whose chat "
        "template it takes");
  }
  return OfModel(model);
}

absl::StatusOr<FilePrompt> ChatFormat::Render(const Json& messages) const {
  if (kind_ == Kind::kNone) {
    return WrongField(kMessages,
                      "--chat auto or --chat chatml to render it, or "
                      "\"prompt\" with the rendered text");
  }
  if (!messages.is_array() || messages.empty()) {
    return WrongField(kMessages, "a list with at least one message");
  }
  FilePrompt prompt;
  if (kind_ == Kind::kChatMl) {
    FORETOKEN_ASSIGN_OR_RETURN(prompt.text, RenderChatMl(messages));
    return prompt;
  }
  // Encoded by the template's own rules, since special tokens that it writes
  // must not be confused with the same text in a message.
  ChatRequest request;
  request.messages = DumpJson(messages);
  FORETOKEN_ASSIGN_OR_RETURN(prompt.ids, model_->Encode(request, absl::Now()));
  return prompt;
}

}  // namespace foretoken::cli
