#include "tools/cli/chat/chat_line.h"

#include "gmock/gmock.h"

namespace foretoken::cli {
namespace {

using ::testing::HasSubstr;

using Kind = ChatLine::Kind;

TEST(ChatLineTest, IsAMessageOrACommand) {
  const std::pair<const char*, ChatLine> cases[] = {
      {"", {Kind::kEmpty, ""}},
      {" \t ", {Kind::kEmpty, ""}},
      {" hi / there ", {Kind::kMessage, " hi / there "}},
      {"//etc is a folder", {Kind::kMessage, "/etc is a folder"}},
      {"/mode", {Kind::kMode, ""}},
      {" /mode  ouroboros:gamma=4 ", {Kind::kMode, "ouroboros:gamma=4"}},
      {"/seed 7", {Kind::kSeed, "7"}},
      {"/stats", {Kind::kStats, ""}},
      {"/clear", {Kind::kClear, ""}},
      {"/help", {Kind::kHelp, ""}},
      {"/quit", {Kind::kQuit, ""}},
      {"/quit now", {Kind::kUnknown, "/quit now"}},
      {"/", {Kind::kUnknown, "/"}},
      {"/seeds", {Kind::kUnknown, "/seeds"}}};
  for (const auto& [line, want] : cases) {
    EXPECT_EQ(ParseChatLine(line), want) << line;
  }
}

TEST(ChatLineTest, TheHelpNamesEveryCommand) {
  for (const char* command :
       {"/mode [MODE]", "/seed [N]", "/stats", "/clear", "/help", "/quit"}) {
    EXPECT_THAT(ChatHelp(), HasSubstr(command));
  }
}

}  // namespace
}  // namespace foretoken::cli
