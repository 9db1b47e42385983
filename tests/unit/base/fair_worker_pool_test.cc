#include "common/base/fair_worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class FairWorkerPoolTest : public ::testing::Test {
 protected:
  void Make(int threads, int64_t max_waiting = 100) {
    FairQueueLimits limits;
    limits.items = max_waiting;
    pool_ = std::make_unique<FairWorkerPool>(threads, limits, /*quantum=*/1);
  }
  // Work that is noted as `name` when it begins and ends when it may.
  void SubmitHeld(const std::string& owner, const std::string& name) {
    Submit(owner, name, /*held=*/true);
  }
  void Submit(const std::string& owner, const std::string& name,
              bool held = false) {
    FairItem item;
    item.owner = owner;
    pool_->Submit(item, {[this, name, held] {
                           Note(begun_, name);
                           if (held) may_end_.WaitForNotification();
                         },
                         [this, name](const absl::Status& status) {
                           EXPECT_TRUE(absl::IsResourceExhausted(status));
                           Note(refused_, name);
                         }});
  }
  void AwaitBegun(size_t count) {
    const auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return begun_.size() >= count;
    };
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&enough));
  }
  void AwaitBegun(const std::string& name) {
    const auto there = [this, &name]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::find(begun_.begin(), begun_.end(), name) != begun_.end();
    };
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&there));
  }
  std::vector<std::string> begun() {
    absl::MutexLock lock(&mu_);
    return begun_;
  }
  std::vector<std::string> refused() {
    absl::MutexLock lock(&mu_);
    return refused_;
  }

  absl::Notification may_end_;

 private:
  void Note(std::vector<std::string>& list, const std::string& name) {
    absl::MutexLock lock(&mu_);
    list.push_back(name);
  }

  absl::Mutex mu_;
  std::vector<std::string> begun_;
  std::vector<std::string> refused_;

 protected:
  std::unique_ptr<FairWorkerPool> pool_;  // last: its work uses the above
};

TEST_F(FairWorkerPoolTest, ItsThreadsGiveWayToTheProcess) {
  Make(/*threads=*/2);
  const int own = getpriority(PRIO_PROCESS, getpid());
  int nice = own;
  absl::Notification done;
  FairWorkerPool::Work work;
  work.run = [&] {
    nice = getpriority(PRIO_PROCESS, 0);
    done.Notify();
  };
  work.refuse = [](const absl::Status&) {};
  FairItem item;
  item.owner = "a";
  pool_->Submit(item, std::move(work));
  done.WaitForNotification();
  EXPECT_EQ(nice, std::min(own + 5, 19));
  EXPECT_EQ(getpriority(PRIO_PROCESS, getpid()), own);
}

TEST_F(FairWorkerPoolTest, OwnersTakeTurns) {
  Make(/*threads=*/1);
  SubmitHeld("flood", "first");
  AwaitBegun(1);
  for (int i = 0; i < 5; ++i) Submit("flood", absl::StrCat("flood ", i));
  Submit("other", "other 0");
  Submit("other", "other 1");
  may_end_.Notify();
  pool_->WaitUntilIdle();
  EXPECT_THAT(begun(), ElementsAre("first", "flood 0", "other 0", "flood 1",
                                   "other 1", "flood 2", "flood 3", "flood 4"));
}

TEST_F(FairWorkerPoolTest, TwoOwnersWithEndlessWorkLeaveAThreadForAThird) {
  Make(/*threads=*/4);
  for (int i = 0; i < 10; ++i) {
    SubmitHeld("a", absl::StrCat("a", i));
    SubmitHeld("b", absl::StrCat("b", i));
  }
  AwaitBegun(2);
  // Nothing of theirs ends before this has begun.
  Submit("c", "c");
  AwaitBegun("c");
  EXPECT_LE(begun().size(), 4u);
  may_end_.Notify();
}

TEST_F(FairWorkerPoolTest, OneOwnerAloneHasHalfOfTheThreads) {
  Make(/*threads=*/4);
  for (int i = 0; i < 4; ++i) SubmitHeld("a", absl::StrCat("a", i));
  AwaitBegun(2);
  SubmitHeld("b", "b");
  SubmitHeld("c", "c");
  AwaitBegun(4);
  EXPECT_THAT(begun(), UnorderedElementsAre("a0", "a1", "b", "c"));
  may_end_.Notify();
}

TEST_F(FairWorkerPoolTest, AFloodDisplacesItsOwnWork) {
  Make(/*threads=*/1, /*max_waiting=*/3);
  SubmitHeld("flood", "first");
  AwaitBegun(1);
  for (int i = 0; i < 4; ++i) Submit("flood", absl::StrCat("flood ", i));
  EXPECT_THAT(refused(), ElementsAre("flood 3"));
  Submit("other", "other");
  EXPECT_THAT(refused(), ElementsAre("flood 3", "flood 2"));
  may_end_.Notify();
  pool_->WaitUntilIdle();
  EXPECT_THAT(begun(), ElementsAre("first", "flood 0", "other", "flood 1"));
}

TEST_F(FairWorkerPoolTest, TheEndWaitsForQueuedWork) {
  Make(/*threads=*/2);
  for (int i = 0; i < 20; ++i) Submit("a", absl::StrCat(i));
  pool_.reset();
  EXPECT_EQ(begun().size(), 20u);
  EXPECT_THAT(refused(), IsEmpty());
}

}  // namespace
}  // namespace foretoken
