// The accept loop against real sockets: limits, descriptors that run out,
// addresses.
#include "common/net/listener.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::net {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::RawConnection;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;

// Owns what the listener accepts, as gRPC does.
class ListenerTest : public ::testing::Test {
 protected:
  ~ListenerTest() override {
    listener_.reset();
    CloseAll();
  }

  std::string Start(ConnectionLimits limits,
                    const std::string& address = "127.0.0.1:0") {
    listener_ = std::make_unique<Listener>(limits, absl::Seconds(5));
    auto bound = listener_->Bind(address, [this](int fd) {
      absl::MutexLock lock(&mu_);
      accepted_.push_back(fd);
    });
    EXPECT_THAT(bound, IsOk());
    listener_->Start();
    return bound.value_or("");
  }
  size_t accepted() {
    absl::MutexLock lock(&mu_);
    return accepted_.size();
  }
  void CloseAll() {
    absl::MutexLock lock(&mu_);
    for (int fd : accepted_) close(fd);
    accepted_.clear();
  }

  absl::Mutex mu_;
  std::vector<int> accepted_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Listener> listener_;
};

constexpr ConnectionLimits kFew = {
    .total = 8, .per_peer = 4, .silent = absl::Hours(1)};

TEST(ConnectionLimitsTest, LeaveAQuarterOfTheProcessesFiles) {
  const ConnectionLimits most =
      ConnectionLimits::WithinFileLimit(1 << 30, /*per_peer=*/0);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_LE(static_cast<rlim_t>(most.total), limit.rlim_cur / 4 * 3);
  EXPECT_EQ(most.per_peer, most.total / 2);
  const ConnectionLimits few = ConnectionLimits::WithinFileLimit(2, 1);
  EXPECT_EQ(few.total, 2);
  EXPECT_EQ(few.per_peer, 1);
}

TEST_F(ListenerTest, AcceptsAndStops) {
  const std::string address = Start(kFew);
  const RawConnection client(address);
  EXPECT_TRUE(Eventually([&] { return accepted() == 1; }));
  listener_->Stop();
  EXPECT_FALSE(client.Closed());
  EXPECT_FALSE(RawConnection(address).connected());
}

TEST_F(ListenerTest, APeerAtItsLimitIsRefused) {
  const std::string address = Start(kFew);
  std::vector<RawConnection> clients;
  for (int i = 0; i < 4; ++i) clients.emplace_back(address);
  ASSERT_TRUE(Eventually([&] { return accepted() == 4; }));
  const RawConnection fifth(address);
  EXPECT_TRUE(Eventually([&] { return fifth.Closed(); }));
  EXPECT_EQ(listener_->refused(), 1);
  EXPECT_EQ(accepted(), 4u);
  for (const RawConnection& client : clients) EXPECT_FALSE(client.Closed());
}

TEST_F(ListenerTest, ClosedConnectionsMakeRoom) {
  const std::string address = Start(kFew);
  for (int round = 0; round < 5; ++round) {
    std::vector<RawConnection> clients;
    for (int i = 0; i < 4; ++i) clients.emplace_back(address);
    ASSERT_TRUE(Eventually([&] { return accepted() == 4; })) << round;
    CloseAll();
    absl::SleepFor(absl::Milliseconds(20));  // full tables are searched rarely
  }
  EXPECT_EQ(listener_->refused(), 0);
}

TEST_F(ListenerTest, TheOldestSilentConnectionMakesRoom) {
  ConnectionLimits limits = kFew;
  limits.silent = absl::ZeroDuration();
  const std::string address = Start(limits);
  const RawConnection spoken(address);
  ASSERT_TRUE(spoken.Say(std::string(4096, 'x')));
  absl::SleepFor(absl::Milliseconds(50));
  const RawConnection first(address);
  ASSERT_TRUE(Eventually([&] { return accepted() == 2; }));
  const RawConnection second(address), third(address);
  ASSERT_TRUE(Eventually([&] { return accepted() == 4; }));
  const RawConnection newcomer(address);
  EXPECT_TRUE(Eventually([&] { return accepted() == 5; }));
  EXPECT_TRUE(Eventually([&] { return first.Closed(); }));
  EXPECT_FALSE(spoken.Closed());
  EXPECT_FALSE(second.Closed());
  EXPECT_FALSE(newcomer.Closed());
  EXPECT_EQ(listener_->refused(), 0);
}

// What stopped gRPC's own listener for ever.
TEST_F(ListenerTest, AcceptsAgainAfterDescriptorsRanOut) {
  const std::string address = Start({.total = 1 << 20, .per_peer = 1 << 20});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<RawConnection> clients;
  for (int i = 0; i < 64; ++i) clients.emplace_back(address);
  ASSERT_TRUE(Eventually([&] { return accepted() == 64; }));
  // Both ends are in this process: one descriptor is left, which the client
  // takes.
  const int next = dup(0);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  close(next);
  {
    const RawConnection waiting(address);
    ASSERT_TRUE(waiting.connected());
    absl::SleepFor(absl::Milliseconds(100));
    EXPECT_EQ(accepted(), 64u);
    clients.clear();
    CloseAll();
    EXPECT_TRUE(Eventually([&] { return accepted() == 1; }));
    const RawConnection newcomer(address);
    EXPECT_TRUE(Eventually([&] { return accepted() == 2; }));
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(ListenerTest, UnixSocketsReplaceDeadOnesAndLeaveNone) {
  const TempDir dir;
  const std::string path = dir.path() + "/socket";
  {
    Listener dead(kFew, absl::Seconds(5));
    ASSERT_THAT(dead.Bind("unix:" + path, [](int) {}), IsOk());
    ASSERT_EQ(rename(path.c_str(), (path + ".kept").c_str()), 0);
  }
  ASSERT_EQ(rename((path + ".kept").c_str(), path.c_str()), 0);
  const std::string address = Start(kFew, "unix:" + path);
  const RawConnection client(address);
  EXPECT_TRUE(Eventually([&] { return accepted() == 1; }));
  listener_->Stop();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

// A rolling restart on one path: the new server has bound before the old one
// stops.
TEST_F(ListenerTest, AUnixSocketOfANewerServerStays) {
  const TempDir dir;
  const std::string path = dir.path() + "/socket";
  Listener old(kFew, absl::Seconds(5));
  ASSERT_THAT(old.Bind("unix:" + path, [](int) {}), IsOk());
  const std::string address = Start(kFew, "unix:" + path);
  old.Stop();
  const RawConnection client(address);
  EXPECT_TRUE(Eventually([&] { return accepted() == 1; }));
}

TEST_F(ListenerTest, NamesAnAddressThatCannotBeBound) {
  const std::string address = Start(kFew);
  Listener other(kFew, absl::Seconds(5));
  EXPECT_THAT(other.Bind(address, [](int) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("cannot listen on " + address)));
  const TempDir dir;
  const std::string file = dir.path() + "/file";
  std::ofstream(file) << "kept";
  EXPECT_THAT(other.Bind("unix:" + file, [](int) {}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(file)));
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace foretoken::net
