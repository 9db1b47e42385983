#include "services/verifier/core/constraint_compiler.h"

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/retry_after.h"
#include "common/base/stopping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Compiled = ConstraintCompiler::Compiled;

// The constraint whose compilation waits until it is let go.
constexpr char kHeld[] = "held";

Constraint Regex(const std::string& source) {
  return {Constraint::Kind::kRegex, source, {}};
}

ConstraintCompiler::Job Job(const std::string& caller,
                            const std::string& source) {
  ConstraintCompiler::Job job;
  job.caller = caller;
  job.constraint = Regex(source);
  job.bytes = static_cast<int64_t>(source.size());
  return job;
}

// What became of a job.
struct Outcome {
  ConstraintCompiler::Ticket ticket = 0;
  absl::Notification ended;
  Compiled result;

  absl::Status status() {
    ended.WaitForNotification();
    return result.status();
  }
};

class ConstraintCompilerTest : public ::testing::Test {
 protected:
  ConstraintCompilerTest() {
    options_.before_compile = [this](const Constraint& constraint) {
      {
        absl::MutexLock lock(&mu_);
        compiled_.push_back(constraint.source);
      }
      if (constraint.source != kHeld) return;
      holds_.Notify();
      go_.WaitForNotification();
    };
  }
  ~ConstraintCompilerTest() override {
    if (!go_.HasBeenNotified()) go_.Notify();
    compiler_.reset();
  }

  void Start() {
    compiler_ = std::make_unique<ConstraintCompiler>(options_,
                                                     [this] { return now(); });
  }
  absl::Time now() const { return absl::FromUnixSeconds(now_s_); }

  ConstraintCompiler::Done Note(Outcome& outcome) {
    return [&outcome](const Compiled& result) {
      EXPECT_FALSE(outcome.ended.HasBeenNotified()) << "ended twice";
      outcome.result = result;
      outcome.ended.Notify();
    };
  }
  Outcome& Compile(ConstraintCompiler::Job job) {
    Outcome& outcome = outcomes_.emplace_back();
    const auto ticket = compiler_->Compile(std::move(job), Note(outcome));
    EXPECT_THAT(ticket, IsOk());
    if (ticket.ok()) outcome.ticket = *ticket;
    return outcome;
  }
  // A job that keeps the thread busy until go_.
  Outcome& Hold() {
    Outcome& outcome = Compile(Job("holder", kHeld));
    holds_.WaitForNotification();
    return outcome;
  }
  std::vector<std::string> compiled() {
    absl::MutexLock lock(&mu_);
    return compiled_;
  }

  std::atomic<int64_t> now_s_{1000};
  absl::Notification holds_, go_;
  absl::Mutex mu_;
  std::vector<std::string> compiled_ ABSL_GUARDED_BY(mu_);  // in their order
  ConstraintCompilerOptions options_;
  std::deque<Outcome> outcomes_;  // they stay put
  std::unique_ptr<ConstraintCompiler> compiler_;
};

TEST_F(ConstraintCompilerTest, ACompiledConstraintIsFound) {
  Start();
  EXPECT_EQ(compiler_->Find(Regex("a+")), nullptr);
  Outcome& job = Compile(Job("a", "a+"));
  FORETOKEN_ASSERT_OK(job.status());
  ASSERT_NE(*job.result, nullptr);
  // No turn is needed for what is there, nor for the answer that it is not.
  Hold();
  EXPECT_EQ(compiler_->Find(Regex("a+")), *job.result);
  EXPECT_EQ(compiler_->Find(Regex("b+")), nullptr);
}

TEST_F(ConstraintCompilerTest, WhatOthersCompileInAJointCacheIsFound) {
  options_.cache =
      std::make_shared<grammar::GrammarCache>(grammar::GrammarCacheOptions());
  const Compiled theirs = options_.cache->Get("a", Regex("a+"));
  FORETOKEN_ASSERT_OK(theirs);
  Start();
  EXPECT_EQ(compiler_->Find(Regex("a+")), *theirs);
  Outcome& ours = Compile(Job("a", "b+"));
  FORETOKEN_ASSERT_OK(ours.status());
  EXPECT_EQ(options_.cache->Find(Regex("b+")), *ours.result);
}

TEST_F(ConstraintCompilerTest, CallersTakeTurnsHoweverManyJobsOneHas) {
  Start();
  Hold();
  for (const char* source : {"a1", "a2", "a3"}) Compile(Job("a", source));
  Compile(Job("b", "b1"));
  go_.Notify();
  for (Outcome& each : outcomes_) FORETOKEN_EXPECT_OK(each.status());
  EXPECT_THAT(compiled(), ElementsAre(kHeld, "a1", "b1", "a2", "a3"));
}

TEST_F(ConstraintCompilerTest, JobsWithOneConstraintEndWithOneCompilation) {
  Start();
  Outcome& held = Hold();
  Outcome& a = Compile(Job("a", "same"));
  Outcome& other = Compile(Job("a", "other"));
  Outcome& b = Compile(Job("b", "same"));
  Outcome& c = Compile(Job("c", kHeld));
  go_.Notify();
  for (Outcome* each : {&held, &a, &b, &c, &other}) {
    FORETOKEN_ASSERT_OK(each->status());
  }
  EXPECT_EQ(*c.result, *held.result);
  EXPECT_EQ(*b.result, *a.result);
  EXPECT_NE(*other.result, *a.result);
  EXPECT_THAT(compiled(), ElementsAre(kHeld, "same", "other"));
}

TEST_F(ConstraintCompilerTest, WhateverIsWrongWithAConstraintIsInvalid) {
  options_.grammars.max_constraint_bytes = 10;
  Start();
  EXPECT_THAT(
      Compile(Job("a", "a(")).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("constraint: ")));
  // Its size is seen without a turn.
  Hold();
  const std::string large(11, 'a');
  Outcome refused;
  EXPECT_THAT(
      compiler_->Compile(Job("a", large), Note(refused)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("11 bytes")));
  EXPECT_EQ(compiler_->Find(Regex(large)), nullptr);
  EXPECT_FALSE(refused.ended.HasBeenNotified());
}

TEST_F(ConstraintCompilerTest, AJobThatIsCancelledWhileItWaitsIsForgotten) {
  Start();
  Hold();
  auto held_by_done = std::make_shared<int>();
  const std::weak_ptr<int> alive = held_by_done;
  const auto ticket = compiler_->Compile(
      Job("a", "cancelled"), [held_by_done](const Compiled&) {
        ADD_FAILURE() << "a cancelled job has ended";
      });
  FORETOKEN_ASSERT_OK(ticket);
  held_by_done.reset();
  EXPECT_FALSE(alive.expired());
  compiler_->Cancel(*ticket);
  EXPECT_TRUE(alive.expired());
  compiler_->Cancel(*ticket);
  Outcome& next = Compile(Job("a", "next"));
  go_.Notify();
  FORETOKEN_EXPECT_OK(next.status());
  compiler_->Cancel(next.ticket);
  EXPECT_THAT(compiled(), ElementsAre(kHeld, "next"));
}

TEST_F(ConstraintCompilerTest, AJobCanBeCancelledDuringItsCompilation) {
  Start();
  auto held_by_done = std::make_shared<int>();
  const std::weak_ptr<int> alive = held_by_done;
  const auto ticket =
      compiler_->Compile(Job("a", kHeld), [held_by_done](const Compiled&) {
        ADD_FAILURE() << "a cancelled job has ended";
      });
  FORETOKEN_ASSERT_OK(ticket);
  held_by_done.reset();
  holds_.WaitForNotification();
  compiler_->Cancel(*ticket);
  EXPECT_TRUE(alive.expired());
  Outcome& next = Compile(Job("a", "next"));
  go_.Notify();
  FORETOKEN_EXPECT_OK(next.status());
  // The work that was done is kept.
  EXPECT_NE(compiler_->Find(Regex(kHeld)), nullptr);
}

TEST_F(ConstraintCompilerTest, ADeadlineThatPassesEndsAJobThatWaits) {
  Start();
  Outcome& held = Hold();
  ConstraintCompiler::Job job = Job("a", "late");
  job.deadline = now() + absl::Seconds(5);
  Outcome& late = Compile(job);
  now_s_ += 6;
  // Makes the watcher look at the clock, which only the test moves.
  job.deadline = now() - absl::Seconds(5);
  Outcome& later = Compile(job);
  EXPECT_THAT(late.status(), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_THAT(later.status(), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_FALSE(held.ended.HasBeenNotified());
  go_.Notify();
  FORETOKEN_EXPECT_OK(held.status());
  // Nor is it compiled when the thread is free.
  EXPECT_THAT(Compile(job).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_THAT(compiled(), ElementsAre(kHeld));
}

TEST_F(ConstraintCompilerTest, AJobThatWaitsTooLongIsRefusedWithAHint) {
  options_.max_wait = absl::ZeroDuration();
  Start();
  Hold();
  ConstraintCompiler::Job job = Job("a", "a1");
  job.deadline = now() + absl::Hours(1);
  const absl::Status refused = Compile(job).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("constraint: it waited")));
  EXPECT_TRUE(RetryAfter(refused).has_value());
}

TEST_F(ConstraintCompilerTest, AFullQueueRefusesTheCallerThatFillsIt) {
  options_.waiting.items = 2;
  Start();
  Hold();
  Outcome& a1 = Compile(Job("a", "a1"));
  Outcome& a2 = Compile(Job("a", "a2"));
  Outcome refused;
  const auto a3 = compiler_->Compile(Job("a", "a3"), Note(refused));
  EXPECT_THAT(a3, StatusIs(absl::StatusCode::kResourceExhausted,
                           HasSubstr("queue is full")));
  EXPECT_TRUE(RetryAfter(a3.status()).has_value());
  Outcome& b1 = Compile(Job("b", "b1"));
  EXPECT_THAT(a2.status(), StatusIs(absl::StatusCode::kResourceExhausted,
                                    HasSubstr("queue is full")));
  go_.Notify();
  FORETOKEN_EXPECT_OK(a1.status());
  FORETOKEN_EXPECT_OK(b1.status());
  EXPECT_FALSE(refused.ended.HasBeenNotified());
}

TEST_F(ConstraintCompilerTest, FailAllEndsTheJobsThatThereAre) {
  Start();
  Outcome& held = Hold();
  Outcome& waits = Compile(Job("a", "waits"));
  compiler_->FailAll(absl::UnavailableError("going away"));
  for (Outcome* each : {&held, &waits}) {
    ASSERT_TRUE(each->ended.HasBeenNotified());
    EXPECT_THAT(each->status(), StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("going away")));
  }
  Outcome& later = Compile(Job("a", "later"));
  go_.Notify();
  FORETOKEN_EXPECT_OK(later.status());
  EXPECT_THAT(compiled(), ElementsAre(kHeld, "later"));
}

TEST_F(ConstraintCompilerTest, TheEndCompilesNothingMore) {
  Start();
  Outcome& held = Hold();
  Outcome& waits = Compile(Job("a", "waits"));
  std::thread end([&] { compiler_.reset(); });
  // Before the compilation in progress has ended.
  EXPECT_TRUE(IsStopping(held.status()));
  EXPECT_TRUE(IsStopping(waits.status()));
  go_.Notify();
  end.join();
  EXPECT_THAT(compiled(), ElementsAre(kHeld));
}

// Its caller may hold a lock that the function takes.
TEST_F(ConstraintCompilerTest, NoFunctionIsCalledFromInsideACall) {
  options_.waiting.items = 2;
  Start();
  Hold();
  absl::Mutex callers;
  absl::Notification displaced, late;
  const auto notify = [&callers](absl::Notification& notification) {
    return [&callers, &notification](const Compiled&) {
      absl::MutexLock lock(&callers);
      notification.Notify();
    };
  };
  const auto never = [](const Compiled&) { ADD_FAILURE(); };
  {
    absl::MutexLock lock(&callers);
    const auto a1 = compiler_->Compile(Job("a", "a1"), never);
    FORETOKEN_ASSERT_OK(a1);
    FORETOKEN_EXPECT_OK(compiler_->Compile(Job("a", "a2"), notify(displaced)));
    const auto b1 = compiler_->Compile(Job("b", "b1"), never);
    FORETOKEN_ASSERT_OK(b1);
    EXPECT_FALSE(compiler_->Compile(Job("a", "a3"), never).ok());
    compiler_->Cancel(*a1);
    compiler_->Cancel(*b1);
    ConstraintCompiler::Job job = Job("a", "late");
    job.deadline = absl::InfinitePast();
    FORETOKEN_EXPECT_OK(compiler_->Compile(job, notify(late)));
  }
  displaced.WaitForNotification();
  late.WaitForNotification();
  go_.Notify();
  compiler_.reset();  // before what the functions use
}

// As a session does that its listener closes, and a caller that tries again.
TEST_F(ConstraintCompilerTest, AFunctionMayCancelAndCompile) {
  Start();
  Hold();
  ConstraintCompiler::Ticket own = 0, other = 0;
  Outcome again;
  const auto first =
      compiler_->Compile(Job("a", "first"), [&](const Compiled& result) {
        FORETOKEN_EXPECT_OK(result);
        compiler_->Cancel(own);
        compiler_->Cancel(other);
        FORETOKEN_EXPECT_OK(compiler_->Compile(Job("a", "again"), Note(again)));
      });
  FORETOKEN_ASSERT_OK(first);
  own = *first;
  const auto second = compiler_->Compile(
      Job("a", "second"), [](const Compiled&) { ADD_FAILURE(); });
  FORETOKEN_ASSERT_OK(second);
  other = *second;
  go_.Notify();
  FORETOKEN_EXPECT_OK(again.status());
  EXPECT_THAT(compiled(), ElementsAre(kHeld, "first", "again"));
  compiler_.reset();  // before `again`
}

// Every job ends once, unless it is cancelled, whatever happens meanwhile.
TEST_F(ConstraintCompilerTest, NoJobIsLostOrEndsTwice) {
  constexpr int kThreads = 4, kEach = 200;
  options_.waiting.items = 20;
  options_.before_compile = nullptr;
  Start();
  std::vector<std::atomic<int>> ends(kThreads * kEach);
  std::vector<std::atomic<bool>> optional(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int index = t * kEach + i;
        ConstraintCompiler::Job job =
            Job(absl::StrCat("caller", i % 3), absl::StrCat("text", i % 50));
        if (i % 7 == 0) job.deadline = now();
        const auto ticket = compiler_->Compile(
            std::move(job), [&ends, index](const Compiled&) { ++ends[index]; });
        if (!ticket.ok()) ++ends[index];
        if (i % 5 == 0 && ticket.ok()) {
          optional[index] = true;
          compiler_->Cancel(*ticket);
        }
        if (i == kEach / 2) compiler_->FailAll(absl::AbortedError("all"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  compiler_.reset();
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_LE(ends[i], 1);
    if (!optional[i]) {
      EXPECT_EQ(ends[i], 1) << i;
    }
  }
}

}  // namespace
}  // namespace foretoken::verifier
