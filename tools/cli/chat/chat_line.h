// A line that a user types in a chat: a message, or a command that begins with
// a slash.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_CHAT_LINE_H_
#define FORETOKEN_TOOLS_CLI_CHAT_CHAT_LINE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::cli {

struct ChatLine {
  enum class Kind : uint8_t {
    kEmpty,
    kMessage,
    kMode,
    kSeed,
    kStats,
    kClear,
    kHelp,
    kQuit,
    kUnknown,  // `text` is the command
  };
  Kind kind = Kind::kEmpty;
  std::string text;  // the message, or the argument of a command

  bool operator==(const ChatLine&) const = default;
};

// A message that begins with two slashes begins with one.
ChatLine ParseChatLine(absl::string_view line);

// The commands, one a line.
std::string ChatHelp();

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_CHAT_LINE_H_
