#include "common/base/request_pool.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/retry_after.h"
#include "gmock/gmock.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wall_clock.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::ShiftedWallClock;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Requests that hold their thread until they are let go, and the order of what
// became of them.
class RequestPoolTest : public ::testing::Test {
 protected:
  struct Held {
    absl::Notification begun, go;
  };

  PooledRequest Request(const std::string& owner, const std::string& name,
                        int32_t max_running = 0) {
    PooledRequest request;
    request.item.owner = owner;
    request.max_running = max_running;
    request.run = [this, name] { Note(name); };
    request.refuse = [this, name](const absl::Status& reason) {
      absl::MutexLock lock(&mu_);
      reason_ = reason;
      events_.push_back(name + " refused");
    };
    return request;
  }
  PooledRequest HeldRequest(const std::string& owner, Held& held) {
    PooledRequest request = Request(owner, "held");
    request.run = [&held] {
      held.begun.Notify();
      held.go.WaitForNotification();
    };
    return request;
  }
  void Note(const std::string& event) {
    absl::MutexLock lock(&mu_);
    events_.push_back(event);
  }
  std::vector<std::string> events() {
    absl::MutexLock lock(&mu_);
    return events_;
  }
  absl::Status reason() {
    absl::MutexLock lock(&mu_);
    return reason_;
  }
  void AwaitEvents(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return events_.size() >= count;
    };
    mu_.Await(absl::Condition(&there));
  }

  absl::Mutex mu_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
};

TEST_F(RequestPoolTest, CallersShareByCostHoweverManyRequestsOneHas) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 16}});
  pool.Submit(HeldRequest("a", held));
  for (const char* name : {"a1", "a2"}) {
    PooledRequest request = Request("a", name);
    request.item.cost = 1000;
    pool.Submit(std::move(request));
  }
  pool.Submit(Request("b", "b1"));
  pool.Submit(Request("b", "b2"));
  held.go.Notify();
  AwaitEvents(4);
  EXPECT_THAT(events(), ElementsAre("b1", "b2", "a1", "a2"));
}

TEST_F(RequestPoolTest, ACallerAtItsLimitWaitsWhileOthersRun) {
  Held held;
  RequestPool pool({.max_running = 3, .waiting = {.items = 16}});
  PooledRequest first = HeldRequest("a", held);
  first.max_running = 1;
  pool.Submit(std::move(first));
  EXPECT_NE(pool.Submit(Request("a", "a2", 1)), RequestPool::kNotWaiting);
  EXPECT_EQ(pool.Submit(Request("b", "b1", 1)), RequestPool::kNotWaiting);
  AwaitEvents(1);
  EXPECT_THAT(events(), ElementsAre("b1"));
  held.go.Notify();
  AwaitEvents(2);
  EXPECT_THAT(events(), ElementsAre("b1", "a2"));
}

// A token file that is read again may raise a caller's limit.
TEST_F(RequestPoolTest, WhatWaitedUnderALowerLimitRunsBeforeWhatComes) {
  Held held, later;
  RequestPool pool({.max_running = 3, .waiting = {.items = 16}});
  PooledRequest first = HeldRequest("a", held);
  first.max_running = 1;
  pool.Submit(std::move(first));
  PooledRequest second = HeldRequest("a", later);
  second.max_running = 1;
  EXPECT_NE(pool.Submit(std::move(second)), RequestPool::kNotWaiting);
  EXPECT_NE(pool.Submit(Request("a", "a3", 2)), RequestPool::kNotWaiting);
  later.begun.WaitForNotification();
  EXPECT_THAT(events(), ElementsAre());
  later.go.Notify();
  AwaitEvents(1);
  held.go.Notify();
}

TEST_F(RequestPoolTest, TheRetryHintFollowsTheLoadWithJitter) {
  std::atomic<int> now_s{0};
  double jitter = 0.5;  // none
  Held held, other;
  RequestPool pool(
      {.max_running = 2,
       .waiting = {.items = 3},
       .min_retry_after = absl::Milliseconds(100)},
      [&] { return absl::UnixEpoch() + absl::Seconds(now_s.load()); },
      [&] { return jitter; });
  // Nothing is known of the time of a request yet.
  EXPECT_EQ(pool.RetryAfter("a", 0), absl::Milliseconds(100));
  PooledRequest slow = Request("a", "slow");
  slow.run = [&] { now_s += 8; };
  pool.Submit(std::move(slow));
  ASSERT_TRUE(testing::Eventually([&] { return pool.active() == 0; }));
  EXPECT_EQ(pool.RetryAfter("a", 0), absl::Seconds(4));

  pool.Submit(HeldRequest("a", held));
  pool.Submit(HeldRequest("a", other));
  for (const char* name : {"a1", "a2", "a3"}) pool.Submit(Request("a", name));
  pool.Submit(Request("a", "a4"));
  AwaitEvents(1);
  EXPECT_EQ(RetryAfter(reason()), absl::Seconds(16));  // 4 turns of 2 threads
  EXPECT_EQ(pool.RetryAfter("a", 1), absl::Seconds(32));
  EXPECT_EQ(pool.RetryAfter("b", 1), absl::Seconds(16));
  jitter = 0;
  EXPECT_EQ(pool.RetryAfter("b", 0), absl::Seconds(12));
  jitter = 1;
  EXPECT_EQ(pool.RetryAfter("b", 0), absl::Seconds(20));
  held.go.Notify();
  other.go.Notify();
}

TEST_F(RequestPoolTest, CallersAreForgottenWithTheirRequests) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 1}});
  pool.Submit(HeldRequest("a", held));
  pool.Submit(Request("b", "b1"));
  for (int i = 0; i < 10; ++i) {
    pool.Submit(Request("refused " + std::to_string(i), "r", 3));
  }
  AwaitEvents(10);
  EXPECT_EQ(pool.callers(), 2);
  held.go.Notify();
  AwaitEvents(11);
}

TEST_F(RequestPoolTest, AFullQueuePushesOutTheCallerThatFillsIt) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 2}});
  pool.Submit(HeldRequest("a", held));
  pool.Submit(Request("a", "a1"));
  pool.Submit(Request("a", "a2"));
  EXPECT_EQ(pool.Submit(Request("a", "a3")), RequestPool::kNotWaiting);
  AwaitEvents(1);
  EXPECT_THAT(events(), ElementsAre("a3 refused"));
  EXPECT_NE(pool.Submit(Request("b", "b1")), RequestPool::kNotWaiting);
  AwaitEvents(2);
  EXPECT_THAT(events(), ElementsAre("a3 refused", "a2 refused"));
  EXPECT_THAT(reason(), StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("queue is full")));
  held.go.Notify();
  AwaitEvents(4);
}

TEST_F(RequestPoolTest, ATriedRequestThatFindsNoRoomIsRefusedAtOnce) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 2}});
  pool.Submit(HeldRequest("a", held));
  const auto a1 = pool.TrySubmit(Request("a", "a1"));
  FORETOKEN_ASSERT_OK(a1);
  EXPECT_NE(*a1, RequestPool::kNotWaiting);
  FORETOKEN_ASSERT_OK(pool.TrySubmit(Request("a", "a2")));
  const auto a3 = pool.TrySubmit(Request("a", "a3"));
  EXPECT_THAT(a3, StatusIs(absl::StatusCode::kResourceExhausted,
                           HasSubstr("queue is full")));
  EXPECT_TRUE(RetryAfter(a3.status()).has_value());
  // One that is displaced later hears of it through its function.
  FORETOKEN_EXPECT_OK(pool.TrySubmit(Request("b", "b1")));
  AwaitEvents(1);
  EXPECT_THAT(events(), ElementsAre("a2 refused"));
  held.go.Notify();
  AwaitEvents(3);
  EXPECT_THAT(events(), UnorderedElementsAre("a2 refused", "a1", "b1"));
}

TEST_F(RequestPoolTest, ATurnIsAsLargeAsTheQuantum) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 16}, .quantum = 1});
  pool.Submit(HeldRequest("a", held));
  for (const char* name : {"a1", "a2", "a3"}) pool.Submit(Request("a", name));
  pool.Submit(Request("b", "b1"));
  held.go.Notify();
  AwaitEvents(4);
  EXPECT_THAT(events(), ElementsAre("a1", "b1", "a2", "a3"));
}

TEST_F(RequestPoolTest, ARequestThatWaitsCanBeTakenBackOnce) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 2}});
  pool.Submit(HeldRequest("a", held));
  const RequestPool::Ticket ticket = pool.Submit(Request("a", "a1"));
  EXPECT_EQ(pool.active(), 2);
  pool.Remove(ticket, absl::CancelledError("gone"));
  pool.Remove(ticket, absl::CancelledError("gone"));
  pool.Remove(RequestPool::kNotWaiting, absl::CancelledError("gone"));
  EXPECT_TRUE(Eventually([&] { return pool.active() == 1; }));
  EXPECT_THAT(events(), ElementsAre("a1 refused"));
  EXPECT_THAT(reason(), StatusIs(absl::StatusCode::kCancelled, "gone"));
  held.go.Notify();
}

// Its caller may hold a lock that the refusal takes.
TEST_F(RequestPoolTest, NothingIsRefusedFromInsideACall) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 1}});
  pool.Submit(HeldRequest("a", held));
  {
    absl::MutexLock lock(&mu_);  // of the events
    const RequestPool::Ticket waiting = pool.Submit(Request("a", "a1"));
    pool.Submit(Request("a", "a2"));  // finds the queue full
    pool.Remove(waiting, absl::CancelledError("gone"));
    PooledRequest late = Request("a", "late");
    late.item.deadline = absl::InfinitePast();
    pool.Submit(std::move(late));
  }
  AwaitEvents(3);
  EXPECT_THAT(events(),
              UnorderedElementsAre("a1 refused", "a2 refused", "late refused"));
  held.go.Notify();
}

TEST_F(RequestPoolTest, ADeadlineEndsTheWait) {
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 4}});
  pool.Submit(HeldRequest("a", held));
  PooledRequest late = Request("a", "late");
  late.item.deadline = absl::Now() + absl::Hours(1);
  pool.Submit(std::move(late));
  PooledRequest soon = Request("a", "soon");
  soon.item.deadline = absl::Now() + absl::Milliseconds(20);
  pool.Submit(std::move(soon));
  AwaitEvents(1);
  EXPECT_THAT(events(), ElementsAre("soon refused"));
  EXPECT_THAT(reason(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 HasSubstr("waited")));
  held.go.Notify();
}

TEST_F(RequestPoolTest, ADeadlineEndsTheWaitThoughTheWallClockIsSetBack) {
  const ShiftedWallClock clock(2 * 3600);
  Held held;
  RequestPool pool({.max_running = 1, .waiting = {.items = 4}});
  pool.Submit(HeldRequest("a", held));
  PooledRequest soon = Request("a", "soon");
  soon.item.deadline = MonotonicNow() + absl::Milliseconds(20);
  pool.Submit(std::move(soon));
  EXPECT_TRUE(Eventually([&] { return events().size() == 1; }));
  held.go.Notify();
}

TEST_F(RequestPoolTest, WhatWaitsStillRunsAtTheEnd) {
  Held held;
  {
    RequestPool pool({.max_running = 2, .waiting = {.items = 64}});
    pool.Submit(HeldRequest("a", held));
    held.begun.WaitForNotification();
    for (int i = 0; i < 40; ++i) pool.Submit(Request("b", "b", 1));
    held.go.Notify();
  }
  EXPECT_EQ(events().size(), 40u);
}

// Every request is run or refused, once, whatever happens at the same time.
TEST_F(RequestPoolTest, NoRequestIsLostOrAnsweredTwice) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::atomic<int>> answers(kThreads * kEach);
  {
    RequestPool pool({.max_running = 3, .waiting = {.items = 20}});
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          std::atomic<int>& answer = answers[t * kEach + i];
          PooledRequest request;
          request.item.owner = std::string(1, static_cast<char>('a' + i % 3));
          request.item.cost = 1 + i % 300;
          request.max_running = i % 2;
          if (i % 7 == 0) {
            request.item.deadline = absl::Now() + absl::Microseconds(50);
          }
          request.run = [&answer] { ++answer; };
          request.refuse = [&answer](const absl::Status&) { ++answer; };
          const auto ticket = pool.Submit(std::move(request));
          if (i % 5 == 0) pool.Remove(ticket, absl::CancelledError(""));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const std::atomic<int>& answer : answers) EXPECT_EQ(answer, 1);
}

}  // namespace
}  // namespace foretoken
