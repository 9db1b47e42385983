// Prompts of a JSONL file, gzip or plain: one object per line with one
// of
//
//   {"prompt": TEXT}                 BOS is added if the model requires it
//   {"prompt_ids": [ID, ...]}        used unchanged
//   {"messages": [{"role": "user", "content": TEXT}, ...]}
//
// Other fields are ignored. Messages become a text by ChatFormat.
// Thread-safe: functions without state.
#ifndef FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_
#define FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace foretoken::cli {

inline constexpr size_t kMaxPrompts = 100'000;
inline constexpr uint64_t kMaxPromptBytes = uint64_t{256} << 20;  // of all

struct FilePrompt {
  std::optional<std::string> text;
  std::vector<TokenId> ids = {};  // without a text
};

enum class ChatFormat {
  kNone,  // messages are refused
  // "<|im_start|>ROLE\nCONTENT<|im_end|>\n" for each message, then
  // "<|im_start|>assistant\n". The model's own template is not evaluated: it
  // may add a system message of its own.
  kChatMl,
};

// InvalidArgument names file, line and field; ResourceExhausted for more than
// the limits above; InvalidArgument for a file without a prompt.
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       ChatFormat chat);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_
