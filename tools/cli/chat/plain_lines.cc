#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/text/utf8.h"
#include "tools/cli/chat/line_source.h"

namespace foretoken::cli {
namespace {

class Plain final : public LineSource {
 public:
  absl::StatusOr<std::optional<std::string>> Next() override {
    std::string line;
    bool too_long = false;
    int c;
    // Read by character to hold at most kMaxLineBytes: std::getline would take
    // a line of any length into memory. The rest of a long line is consumed, or
    // it would be read as the next message.
    while ((c = std::cin.get()) != std::char_traits<char>::eof() && c != '\n') {
      if (line.size() < kMaxLineBytes) {
        line.push_back(static_cast<char>(c));
      } else {
        too_long = true;
      }
    }
    if (too_long) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a line of more than ", kMaxLineBytes, " bytes"));
    }
    // A last line without a newline is still a message; only EOF with nothing
    // before it ends the input.
    if (c != '\n' && line.empty()) return std::nullopt;
    if (!IsValidUtf8(line)) {
      return absl::InvalidArgumentError("the line is not UTF-8");
    }
    return line;
  }
};

}  // namespace

std::unique_ptr<LineSource> PlainLines() { return std::make_unique<Plain>(); }

std::string DefaultHistoryFile() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  // XDG Base Directory Specification: a relative path in these variables is
  // invalid and must be ignored. Without a place of its own the history is kept
  // in memory only.
  std::filesystem::path state = variable("XDG_STATE_HOME");
  if (!state.is_absolute()) {
    const std::filesystem::path home = variable("HOME");
    if (!home.is_absolute()) return "";
    state = home / ".local" / "state";
  }
  state /= "foretoken";
  std::error_code error;
  std::filesystem::create_directories(state, error);
  if (error) return "";
  return (state / "chat_history").string();
}

}  // namespace foretoken::cli
