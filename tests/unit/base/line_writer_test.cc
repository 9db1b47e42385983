#include "common/base/line_writer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"

namespace foretoken {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Notice(int64_t lines) { return absl::StrCat("lost ", lines, "\n"); }

// A pipe or a pair of sockets.
class Ends {
 public:
  explicit Ends(bool socket) {
    int fds[2];
    EXPECT_EQ(socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : pipe(fds), 0);
    read_ = fds[0];
    write_ = fds[1];
  }
  ~Ends() {
    CloseReader();
    close(write_);
  }
  int writer() const { return write_; }
  void CloseReader() {
    if (read_ >= 0) close(read_);
    read_ = -1;
  }
  // What can be read now; at least a byte if `wait`.
  std::string Read(bool wait = false) const {
    std::string text;
    std::array<char, 4096> piece;
    fcntl(read_, F_SETFL, wait ? 0 : O_NONBLOCK);
    ssize_t n = 0;
    while ((n = read(read_, piece.data(), piece.size())) > 0) {
      text.append(piece.data(), static_cast<size_t>(n));
      fcntl(read_, F_SETFL, O_NONBLOCK);
    }
    return text;
  }

 private:
  int read_ = -1;
  int write_ = -1;
};

class LineWriterTest : public ::testing::TestWithParam<bool> {};

TEST_P(LineWriterTest, WritesAtOnceWhereThereIsRoom) {
  const Ends ends(GetParam());
  LineWriter writer(ends.writer(), Notice);
  writer.Write("one\n");
  writer.Write("two\n");
  EXPECT_EQ(ends.Read(), "one\ntwo\n");
  EXPECT_EQ(writer.dropped(), 0);
}

// The attack: nobody reads. Every call returns, and who reads later finds whole
// lines in their order, and how many are missing.
TEST_P(LineWriterTest, DropsAndCountsWhatNobodyReads) {
  const Ends ends(GetParam());
  LineWriter writer(ends.writer(), Notice);
  constexpr int kLines = 20000;
  for (int i = 0; i < kLines; ++i) {
    writer.Write(absl::StrCat(i, " ", std::string(60, 'x'), "\n"));
  }
  const int64_t dropped = writer.dropped();
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, kLines);
  std::string text;
  ASSERT_TRUE(testing::Eventually([&] {
    text += ends.Read();
    return absl::StrContains(text, "lost ");
  }));
  std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), static_cast<size_t>(kLines - dropped + 1));
  EXPECT_EQ(lines.back(), absl::StrCat("lost ", dropped));
  lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i], absl::StrCat(i, " ", std::string(60, 'x')));
  }
  writer.Write("after\n");
  EXPECT_EQ(ends.Read(), "after\n");
  EXPECT_EQ(writer.dropped(), dropped);
}

TEST_P(LineWriterTest, ALineThatHasBegunIsWrittenWhole) {
  const Ends ends(GetParam());
  LineWriter writer(ends.writer(), Notice);
  // More than pipe and socket take at once, and more than is kept of others.
  const std::string line = std::string(size_t{1} << 20, 'y') + "\n";
  writer.Write(line);
  writer.Write("dropped\n");
  std::string got;
  EXPECT_TRUE(testing::Eventually([&] {
    got += ends.Read();
    return absl::StrContains(got, "lost ");
  }));
  EXPECT_EQ(got, line + "lost 1\n");
}

TEST_P(LineWriterTest, FlushWaitsForASlowReader) {
  const Ends ends(GetParam());
  LineWriter writer(ends.writer(), Notice);
  while (writer.dropped() == 0) writer.Write(std::string(999, 'z') + "\n");
  std::string text;
  std::thread reader([&] {
    while (!absl::StrContains(text, "last\n")) text += ends.Read(/*wait=*/true);
  });
  writer.Flush(absl::Minutes(1));
  writer.Write("last\n");
  writer.Flush(absl::Minutes(1));
  reader.join();
  EXPECT_THAT(text, EndsWith("last\n"));
  EXPECT_THAT(text, HasSubstr("lost 1\n"));
}

TEST_P(LineWriterTest, FlushEndsThoughNobodyReads) {
  const Ends ends(GetParam());
  LineWriter writer(ends.writer(), Notice);
  while (writer.dropped() == 0) writer.Write(std::string(999, 'z') + "\n");
  // Until there is no room for a short line either.
  for (const int64_t before = writer.dropped(); writer.dropped() == before;) {
    writer.Write("fill\n");
  }
  writer.Flush(absl::Milliseconds(1));
  writer.Write("last\n");
  EXPECT_THAT(ends.Read(), Not(HasSubstr("last\n")));
}

TEST_P(LineWriterTest, LinesOfThreadsStayApart) {
  const Ends ends(GetParam());
  LineWriter writer(ends.writer(), Notice);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer, t] {
      for (int i = 0; i < 100; ++i) {
        writer.Write(absl::StrCat(std::string(50, 'a' + t), "\n"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A socket takes fewer lines at once, and the rest is kept.
  std::string text;
  EXPECT_TRUE(testing::Eventually([&] {
    text += ends.Read();
    return std::count(text.begin(), text.end(), '\n') == 400;
  }));
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) {
    EXPECT_EQ(line, std::string(50, line.front()));
  }
}

INSTANTIATE_TEST_SUITE_P(PipesAndSockets, LineWriterTest, ::testing::Bool(),
                         [](const auto& each) {
                           return each.param ? "socket" : "pipe";
                         });

// Tests and daemons put another file behind the descriptor.
TEST(LineWriterOfFdTest, FollowsWhatItsDescriptorRefersTo) {
  const Ends first(false);
  const Ends second(false);
  const int fd = dup(first.writer());
  LineWriter writer(fd, Notice);
  writer.Write("one\n");
  ASSERT_EQ(dup2(second.writer(), fd), fd);
  writer.Write("two\n");
  EXPECT_EQ(first.Read(), "one\n");
  EXPECT_EQ(second.Read(), "two\n");
  close(fd);
}

// Other processes share the pipe, and may rely on waiting for room.
TEST(LineWriterOfFdTest, LeavesTheDescriptorsFlags) {
  const Ends ends(false);
  const int before = fcntl(ends.writer(), F_GETFL);
  LineWriter writer(ends.writer(), Notice);
  writer.Write("one\n");
  EXPECT_EQ(fcntl(ends.writer(), F_GETFL), before);
  EXPECT_EQ(before & O_NONBLOCK, 0);
}

}  // namespace
}  // namespace foretoken
