// What the engines' own tests do not show: who waits for whom. Opens, closes,
// bad rounds, deadlines and stops are tested with the engines behind it.
#include "common/engine/engine_loop.h"

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wall_clock.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::ShiftedWallClock;
using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(60);
// The length of a pass by the test's clock: a gather may take an eighth.
constexpr absl::Duration kPass = absl::Hours(8);

class Listener {
 public:
  void OnOpened(const std::string&) {}
  void OnFailed(const absl::Status&) {}
  void OnAnswer(int pass) {
    absl::MutexLock lock(&mu_);
    passes_.push_back(pass);
  }
  size_t count() const {
    absl::MutexLock lock(&mu_);
    return passes_.size();
  }
  // The passes that answered, once there are `count`.
  std::vector<int> Await(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto done = [&] { return passes_.size() >= count; };
    FORETOKEN_CHECK(mu_.AwaitWithTimeout(absl::Condition(&done), kPatience));
    return passes_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<int> passes_;
};

// Answers every round that waits in its next pass.
class Engine {
 public:
  using OpenRequest = int;
  using RoundRequest = int;
  using Listener = foretoken::Listener;
  using Snapshot = EngineNumbers;
  struct Report {
    int pass = 0;
    std::set<SessionId> answers;
    std::vector<SessionFailure> failures;
    PassStats stats;
    template <typename ListenerOf>
    void Deliver(const ListenerOf& listener_of) {
      for (const SessionId session : answers) {
        Listener* const listener = listener_of(session, true);
        if (listener != nullptr) listener->OnAnswer(pass);
      }
    }
  };

  explicit Engine(std::atomic<int64_t>* seconds, const std::atomic<bool>* lost)
      : seconds_(seconds), lost_(lost) {}

  absl::StatusOr<SessionId> Open(int) { return next_++; }
  absl::Status Submit(SessionId session, int, absl::Time) {
    waiting_.insert(session);
    return absl::OkStatus();
  }
  absl::Status Close(SessionId session) {
    waiting_.erase(session);
    return absl::OkStatus();
  }
  bool HasWork() const { return !waiting_.empty(); }
  absl::Time NextDeadline() const { return absl::InfiniteFuture(); }
  Report RunPass() {
    *seconds_ += absl::ToInt64Seconds(kPass);
    Report report;
    report.pass = ++passes_;
    report.answers = std::exchange(waiting_, {});
    return report;
  }
  EngineNumbers snapshot() const { return {}; }
  const ModelConfig& model() const { return model_; }
  std::string numerics_fingerprint() const { return "none"; }
  bool lost() const { return *lost_; }

 private:
  std::atomic<int64_t>* const seconds_;
  const std::atomic<bool>* const lost_;
  ModelConfig model_;
  std::set<SessionId> waiting_;
  SessionId next_ = 1;
  int passes_ = 0;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  using Loop = EngineLoop<Engine>;
  struct Client {
    std::shared_ptr<Listener> listener = std::make_shared<Listener>();
    std::unique_ptr<Loop::Session> session;
    void Ask() { FORETOKEN_ASSERT_OK(session->Ask(0)); }
  };

  void Start(absl::Duration gather_time,
             std::shared_ptr<PassTurns> turns = nullptr) {
    EngineLoopOptions options;
    options.gather_time = gather_time;
    options.turns = std::move(turns);
    loop_ = std::make_unique<Loop>(
        options, std::make_unique<Engine>(&seconds_, &lost_), nullptr,
        [this] { return absl::FromUnixSeconds(seconds_); });
  }
  Client Open() {
    Client client;
    client.session = *loop_->Open(0, client.listener);
    return client;
  }

  std::atomic<int64_t> seconds_{1000};  // the clock
  std::atomic<bool> lost_{false};       // the engine's device
  std::unique_ptr<Loop> loop_;
};

TEST_F(EngineLoopTest, APassWaitsForTheSessionsThatTheLastOneAnswered) {
  Start(absl::Hours(1));
  Client a = Open(), b = Open();
  a.Ask();
  a.listener->Await(1);
  b.Ask();
  a.Ask();  // b's pass may wait for a, and must not run without it
  const int shared = b.listener->Await(1).back();
  EXPECT_EQ(a.listener->Await(2).back(), shared);
  for (int round = 1; round <= 20; ++round) {
    a.Ask();
    b.Ask();
    EXPECT_EQ(a.listener->Await(2 + round).back(),
              b.listener->Await(1 + round).back());
  }
}

TEST_F(EngineLoopTest, NoPassWaitsForASessionThatWasClosed) {
  Start(absl::Hours(1));
  Client a = Open(), b = Open();
  a.Ask();
  a.listener->Await(1);
  b.Ask();
  a.session.reset();
  EXPECT_THAT(b.listener->Await(1), ElementsAre(2));
}

TEST_F(EngineLoopTest, AGatherEndsThoughTheWallClockIsSetBack) {
  const ShiftedWallClock clock(2 * 3600);
  Start(absl::Milliseconds(10));
  Client a = Open(), b = Open();
  a.Ask();
  a.listener->Await(1);
  b.Ask();
  EXPECT_TRUE(Eventually([&] {
    seconds_ += 1;  // by the test's clock, the gather is over
    return b.listener->count() == 1;
  }));
}

// The gather may end between two looks at the clock.
TEST_F(EngineLoopTest, AGatherThatEndsAtAnyLookIsNotSleptThrough) {
  EngineLoopOptions options;
  options.gather_time = absl::Milliseconds(10);
  std::atomic<int64_t> looks{0};
  loop_ = std::make_unique<Loop>(
      options, std::make_unique<Engine>(&seconds_, &lost_), nullptr, [&] {
        return absl::FromUnixSeconds(seconds_) +
               absl::Milliseconds(3) * ++looks;
      });
  Client a = Open(), b = Open();
  a.Ask();
  a.listener->Await(1);
  for (size_t round = 1; round <= 50; ++round) {
    b.Ask();  // and `a` is waited for in vain
    b.listener->Await(round);
    a.Ask();
    a.listener->Await(round + 1);
  }
  a.session.reset();
  b.session.reset();
  loop_.reset();  // before the clock that it looks at
}

TEST_F(EngineLoopTest, WithoutAGatherTimeNoPassWaits) {
  Start(absl::ZeroDuration());
  Client a = Open(), b = Open();
  a.Ask();
  a.listener->Await(1);
  b.Ask();
  EXPECT_THAT(b.listener->Await(1), ElementsAre(2));
}

TEST_F(EngineLoopTest, RoundsThatComeWhileItWaitsForItsTurnShareAPass) {
  const auto turns = std::make_shared<PassTurns>();
  Wakeup wakeup;
  PassTurns::Seat other(turns, wakeup);
  const absl::Time now = absl::FromUnixSeconds(seconds_);
  ASSERT_TRUE(other.TryBegin(now, true));
  Start(absl::ZeroDuration(), turns);
  Client a = Open(), b = Open();
  a.Ask();
  b.Ask();
  // A snapshot counts commands that were not taken yet.
  ASSERT_TRUE(Eventually([&] { return loop_->snapshot().queue_length == 0; }));
  EXPECT_EQ(a.listener->count(), 0u);
  other.End(now, /*goes_on=*/false, true);
  EXPECT_THAT(a.listener->Await(1), ElementsAre(1));
  EXPECT_THAT(b.listener->Await(1), ElementsAre(1));
}

TEST_F(EngineLoopTest, AWaitForATurnEndsWithTheWork) {
  const auto turns = std::make_shared<PassTurns>();
  Wakeup wakeup;
  PassTurns::Seat other(turns, wakeup);
  const absl::Time now = absl::FromUnixSeconds(seconds_);
  ASSERT_TRUE(other.TryBegin(now, true));
  Start(absl::ZeroDuration(), turns);
  Client a = Open();
  a.Ask();
  a.session.reset();
  Client b = Open();
  b.Ask();
  ASSERT_TRUE(Eventually([&] { return loop_->snapshot().queue_length == 0; }));
  EXPECT_EQ(b.listener->count(), 0u);
  b.session.reset();
  loop_.reset();  // joins its thread
  other.End(now, /*goes_on=*/false, true);
}

TEST_F(EngineLoopTest, AnEngineThatLosesItsDeviceHangs) {
  Start(absl::ZeroDuration());
  Client a = Open();
  a.Ask();
  a.listener->Await(1);
  EXPECT_FALSE(loop_->Hangs());
  lost_ = true;
  a.Ask();
  a.listener->Await(2);
  EXPECT_TRUE(loop_->Hangs());
}

TEST_F(EngineLoopTest, ADeviceMayBeLostBetweenPasses) {
  Start(absl::ZeroDuration());
  lost_ = true;
  const Client a = Open();
  EXPECT_TRUE(Eventually([&] { return loop_->Hangs(); }));
}

}  // namespace
}  // namespace foretoken
