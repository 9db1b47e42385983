// Prompts of a JSONL file, gzip or plain: one object per line with exactly one
// of
//   {"prompt": TEXT}                             encoded as it is
//   {"prompt_ids": [ID, ...]}                    taken as they are
//   {"messages": [{"role", "content"}, ...]}     a chat, see ChatTemplate
// Other fields are ignored.
#ifndef FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_
#define FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace foretoken::cli {

// How the messages of a chat become the text of a prompt.
enum class ChatTemplate {
  kNone,    // they are refused
  kChatMl,  // <|im_start|>ROLE\nCONTENT<|im_end|>\n for each message, then
            // <|im_start|>assistant\n
};

// A text, not empty, or token ids, not empty.
using FilePrompt = std::variant<std::string, std::vector<TokenId>>;

// Errors name file and line: NotFound; InvalidArgument for malformed JSON, a
// line with none or several of the fields, a wrong type, an empty prompt, text
// that is not UTF-8, or a file without prompts; FailedPrecondition for messages
// without a template; ResourceExhausted for prompts of more than 256 MiB.
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       ChatTemplate chat);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_
