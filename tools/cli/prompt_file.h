// Prompts of a JSONL file, gzip or plain: one object per line with one
// of
//
//   {"prompt": TEXT}                 BOS is added if the model requires it
//   {"prompt_ids": [ID, ...]}        used unchanged
//   {"messages": [{"role": "user", "content": TEXT}, ...]}
//
// and, if its output is constrained,
//
//   "constraint": {"json_schema": {...}}, {"json_object": true},
//                 {"regex": TEXT}, {"grammar": TEXT} or {"choice": [TEXT, ...]}
//
// Other fields are ignored. Messages become a prompt by ChatFormat.
// Thread-safe: functions without state.
#ifndef FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_
#define FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/chat_format.h"

namespace foretoken::cli {

inline constexpr size_t kMaxPrompts = 100'000;
inline constexpr uint64_t kMaxPromptBytes = uint64_t{256} << 20;  // of all

// InvalidArgument names file, line and field; ResourceExhausted for more than
// the limits above; InvalidArgument for a file without a prompt.
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       const ChatFormat& chat);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_PROMPT_FILE_H_
