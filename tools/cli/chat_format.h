// How the messages of a prompt become what a model reads: --chat.
//
// Thread-safe: const methods may be called concurrently.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_FORMAT_H_
#define FORETOKEN_TOOLS_CLI_CHAT_FORMAT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "common/grammar/constraint.h"
#include "common/text/chat/model_chat.h"

namespace foretoken::cli {

struct FilePrompt {
  std::optional<std::string> text;
  std::vector<TokenId> ids = {};  // without a text
  Constraint constraint = {};     // on the output
};

class ChatFormat {
 public:
  // Messages are refused.
  static ChatFormat None() { return ChatFormat(Kind::kNone, nullptr); }
  // "<|im_start|>ROLE\nCONTENT<|im_end|>\n" for each message, then
  // "<|im_start|>assistant\n".
  static ChatFormat ChatMl() { return ChatFormat(Kind::kChatMl, nullptr); }
  // The model's own template. FailedPrecondition for a model without one.
  static absl::StatusOr<ChatFormat> OfModel(const std::string& model);

  // --chat: none, chatml or auto, which takes the template of `model`, a model
  // directory or a GGUF file. InvalidArgument for auto without one.
  static absl::StatusOr<ChatFormat> Open(const std::string& chat,
                                         const std::string& model);

  // `messages`: a list of objects with role and content. InvalidArgument names
  // the field.
  absl::StatusOr<FilePrompt> Render(const Json& messages) const;

 private:
  enum class Kind { kNone, kChatMl, kModel };
  ChatFormat(Kind kind, std::shared_ptr<const ModelChat> model)
      : kind_(kind), model_(std::move(model)) {}

  Kind kind_;
  // Shared by copies, which are equal.
  std::shared_ptr<const ModelChat> model_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_FORMAT_H_
