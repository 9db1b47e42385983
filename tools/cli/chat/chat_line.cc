#include "tools/cli/chat/chat_line.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace foretoken::cli {
namespace {

struct Command {
  absl::string_view name;
  ChatLine::Kind kind;
  absl::string_view arguments;
  absl::string_view help;
};

constexpr Command kCommands[] = {
    {"/mode", ChatLine::Kind::kMode, "[MODE]",
     "speculate by MODE[:key=value,...]; alone: show the mode"},
    {"/seed", ChatLine::Kind::kSeed, "[N]",
     "draw answers from seed N; alone: a new seed for each"},
    {"/stats", ChatLine::Kind::kStats, "", "tokens and speed so far"},
    {"/clear", ChatLine::Kind::kClear, "", "forget the conversation"},
    {"/help", ChatLine::Kind::kHelp, "", "this list"},
    {"/quit", ChatLine::Kind::kQuit, "", "leave, as Ctrl-D does"},
};

}  // namespace

ChatLine ParseChatLine(absl::string_view line) {
  const absl::string_view text = absl::StripAsciiWhitespace(line);
  if (text.empty()) return {};
  // A second slash escapes the first, so that a message may begin with a slash;
  // only one of the two is sent.
  if (absl::StartsWith(text, "//")) {
    return {ChatLine::Kind::kMessage, std::string(text.substr(1))};
  }
  // Messages keep their outer spaces: indented code is part of the prompt.
  if (text.front() != '/') {
    return {ChatLine::Kind::kMessage, std::string(line)};
  }
  const absl::string_view name = text.substr(0, text.find_first_of(" \t"));
  const absl::string_view argument =
      absl::StripAsciiWhitespace(text.substr(name.size()));
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    // An argument to a command that takes none is more likely a message that
    // begins with a slash by mistake; /clear must not act on it.
    if (!argument.empty() && command.arguments.empty()) break;
    return {command.kind, std::string(argument)};
  }
  return {ChatLine::Kind::kUnknown, std::string(text)};
}

std::string ChatHelp() {
  std::string help;
  for (const Command& command : kCommands) {
    absl::StrAppendFormat(
        &help, "  %-13s %s\n",
        absl::StrCat(command.name, command.arguments.empty() ? "" : " ",
                     command.arguments),
        command.help);
  }
  return help + "  Ctrl-C        stop an answer\n";
}

}  // namespace foretoken::cli
