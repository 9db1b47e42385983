#include "common/base/reloaded_file.h"

#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;

absl::Time g_now = absl::FromUnixSeconds(1000);

absl::Time Now() { return g_now; }

TEST(ReloadedFileTest, TheFirstReadMustSucceed) {
  const TempDir dir;
  ReloadedFile<std::string> file(
      dir.File("none"), [](const std::string& path) { return ReadFile(path); },
      Now);
  EXPECT_THAT(file.Load(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(ReloadedFileTest, AVersionThatCouldNotBeReadIsTriedAgain) {
  const TempDir dir;
  const std::string path = dir.Write("file", "one");
  bool readable = true;
  int reads = 0;
  ReloadedFile<std::string> file(
      path,
      [&](const std::string& name) -> absl::StatusOr<std::string> {
        ++reads;
        if (!readable) return absl::UnavailableError("not now");
        return ReadFile(name);
      },
      Now);
  FORETOKEN_ASSERT_OK(file.Load());
  EXPECT_EQ(*file.Get(), "one");
  dir.Write("file", "three");
  EXPECT_EQ(*file.Get(), "one");  // not looked at yet
  readable = false;
  for (int i = 0; i < 3; ++i) {
    g_now += kReloadInterval;
    EXPECT_EQ(*file.Get(), "one");
  }
  EXPECT_EQ(reads, 4);
  readable = true;
  g_now += kReloadInterval;
  EXPECT_EQ(*file.Get(), "three");
  g_now += kReloadInterval;
  EXPECT_EQ(*file.Get(), "three");
  EXPECT_EQ(reads, 5);
}

TEST(ReloadedFileTest, NobodyWaitsForTheOneWhoReads) {
  const TempDir dir;
  const std::string path = dir.Write("file", "one");
  bool slow = false;
  absl::Notification begun, go;
  ReloadedFile<std::string> file(
      path,
      [&](const std::string& name) {
        if (slow) {
          begun.Notify();
          go.WaitForNotification();
        }
        return ReadFile(name);
      },
      Now);
  FORETOKEN_ASSERT_OK(file.Load());
  dir.Write("file", "three");
  slow = true;
  g_now += kReloadInterval;
  std::thread reader([&] { EXPECT_EQ(*file.Get(), "three"); });
  begun.WaitForNotification();
  EXPECT_EQ(*file.Get(), "one");
  go.Notify();
  reader.join();
  EXPECT_EQ(*file.Get(), "three");
}

}  // namespace
}  // namespace foretoken
