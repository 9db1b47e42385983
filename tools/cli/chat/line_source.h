// LineSource: the lines that a user types.
//
// Owned by one thread.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_LINE_SOURCE_H_
#define FORETOKEN_TOOLS_CLI_CHAT_LINE_SOURCE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace foretoken::cli {

class LineSource {
 public:
  static constexpr size_t kMaxLineBytes = size_t{1} << 20;

  virtual ~LineSource() = default;

  // The next line without its end; nullopt at the end of the input. Malformed
  // UTF-8 is InvalidArgument, a line above kMaxLineBytes ResourceExhausted; the
  // line is skipped.
  virtual absl::StatusOr<std::optional<std::string>> Next() = 0;
};

// Lines of stdin as they are, without a prompt.
std::unique_ptr<LineSource> PlainLines();

// Lines that are edited in the terminal, with the history in `history_file`,
// which only its owner may read; empty: none is kept. Ctrl-C drops the line.
// nullptr if stdin or stdout is not a terminal, and in a build without libedit.
std::unique_ptr<LineSource> EditedLines(const std::string& prompt,
                                        const std::string& history_file);

// foretoken/chat_history in the user's folder of state (XDG_STATE_HOME, or
// ~/.local/state), which is made; empty where there is none.
std::string DefaultHistoryFile();

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_LINE_SOURCE_H_
