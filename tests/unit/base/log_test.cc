#include "common/base/log.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Logged(const std::string& text) {
  ::testing::internal::CaptureStderr();
  FORETOKEN_LOG(kWarning, "datastore '", text, "'");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, ALineHasLevelTimeAndPlace) {
  const std::string line = Logged("code");
  EXPECT_THAT(line, StartsWith("W 2"));
  EXPECT_THAT(line, HasSubstr("Z log_test.cc:"));
  EXPECT_THAT(line, EndsWith(" datastore 'code'\n"));
}

// Client text cannot forge a second line or move a terminal's cursor.
TEST(LogTest, ControlCharactersAreEscaped) {
  const std::string line = Logged("x\nE forged\r\x1b[2J\x7f\0y");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_THAT(line, HasSubstr("x\\x0aE forged\\x0d\\x1b[2J\\x7f"));
  EXPECT_THAT(Logged("größe 日本"), HasSubstr("'größe 日本'"));
}

}  // namespace
}  // namespace foretoken
