#include "common/engine/pass_turns.h"

#include <memory>

#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using Seat = PassTurns::Seat;

class PassTurnsTest : public ::testing::Test {
 protected:
  absl::Time At(int milliseconds) const {
    return absl::UnixEpoch() + absl::Milliseconds(milliseconds);
  }
  // A pass of the seat, which must begin at once.
  void Run(Seat& seat, int from, int to, bool goes_on = false) {
    ASSERT_TRUE(seat.TryBegin(At(from), &seat != &target_));
    seat.End(At(to), goes_on, &seat != &target_);
  }

  std::shared_ptr<PassTurns> turns_ = std::make_shared<PassTurns>();
  Wakeup wakeup_;
  Seat target_{turns_, wakeup_};
  Seat draft_{turns_, wakeup_};
};

TEST_F(PassTurnsTest, OnePassRunsAtATime) {
  ASSERT_TRUE(target_.TryBegin(At(0), false));
  EXPECT_FALSE(draft_.TryBegin(At(1), true));
  EXPECT_TRUE(draft_.refused());
  target_.End(At(60), /*goes_on=*/false, false);
  EXPECT_FALSE(draft_.refused()) << "it is called";
  EXPECT_TRUE(draft_.TryBegin(At(60), true));
  EXPECT_FALSE(target_.TryBegin(At(61), false));
  draft_.End(At(70), /*goes_on=*/false, true);
  EXPECT_TRUE(target_.TryBegin(At(70), false));
}

TEST_F(PassTurnsTest, DraftsGoFirstUntilTheTargetHasWaitedForAPass) {
  Run(target_, 0, 60);
  ASSERT_TRUE(draft_.TryBegin(At(61), true));
  EXPECT_FALSE(target_.TryBegin(At(62), false));
  for (int end = 71; end < 120; end += 10) {
    draft_.End(At(end), /*goes_on=*/true, true);
    EXPECT_FALSE(target_.refused());
    EXPECT_FALSE(target_.TryBegin(At(end), false));
    EXPECT_TRUE(draft_.TryBegin(At(end), true));
  }
  draft_.End(At(122), /*goes_on=*/true, true);
  // Whichever comes first.
  EXPECT_FALSE(draft_.TryBegin(At(122), true));
  EXPECT_TRUE(target_.TryBegin(At(122), false));
  target_.End(At(200), /*goes_on=*/true, false);
  EXPECT_FALSE(target_.TryBegin(At(200), false));
  EXPECT_TRUE(draft_.TryBegin(At(200), true));
}

// Else both would wait for the other's call.
TEST_F(PassTurnsTest, WhoYieldsCallsThoseItYieldsTo) {
  Run(target_, 0, 10);
  ASSERT_TRUE(draft_.TryBegin(At(11), true));
  EXPECT_FALSE(target_.TryBegin(At(12), false));
  draft_.End(At(20), /*goes_on=*/true, true);
  EXPECT_FALSE(target_.TryBegin(At(20), false));
  EXPECT_TRUE(target_.refused());
  EXPECT_FALSE(draft_.TryBegin(At(25), true)) << "the target is overdue";
  EXPECT_FALSE(target_.refused());
  EXPECT_TRUE(target_.TryBegin(At(25), false));
}

TEST_F(PassTurnsTest, APassThatOnlyReadsGoesBeforeNone) {
  Run(target_, 0, 60);
  ASSERT_TRUE(draft_.TryBegin(At(60), /*goes_first=*/false));
  EXPECT_FALSE(target_.TryBegin(At(61), false));
  draft_.End(At(160), /*goes_on=*/true, /*goes_first=*/false);
  // They alternate: the one that has waited longer is next.
  EXPECT_FALSE(draft_.TryBegin(At(160), /*goes_first=*/false));
  EXPECT_TRUE(target_.TryBegin(At(160), false));
}

TEST_F(PassTurnsTest, AfterALongPromptTheTargetDoesNotYieldForLonger) {
  Run(target_, 0, 5000);
  ASSERT_TRUE(draft_.TryBegin(At(5000), true));
  EXPECT_FALSE(target_.TryBegin(At(5001), false));
  draft_.End(At(5250), /*goes_on=*/true, true);
  EXPECT_FALSE(target_.TryBegin(At(5250), false));
  EXPECT_FALSE(draft_.TryBegin(At(5251), true));
  EXPECT_TRUE(target_.TryBegin(At(5251), false));
}

TEST_F(PassTurnsTest, NobodyWaitsForOneThatGaveUp) {
  Run(target_, 0, 100);
  Run(draft_, 100, 110, /*goes_on=*/true);
  EXPECT_FALSE(target_.TryBegin(At(110), false));
  draft_.GiveUp();
  EXPECT_FALSE(target_.refused());
  EXPECT_TRUE(target_.TryBegin(At(111), false));
}

TEST_F(PassTurnsTest, APassThatHangsStopsTheOthersForASecond) {
  Run(target_, 0, 60);
  ASSERT_TRUE(draft_.TryBegin(At(100), true));
  EXPECT_FALSE(target_.TryBegin(At(200), false));
  EXPECT_FALSE(target_.TryBegin(At(1199), false));
  EXPECT_EQ(target_.retry_at(), At(1200));
  EXPECT_TRUE(target_.TryBegin(At(1200), false));
  target_.End(At(1260), /*goes_on=*/false, false);
  EXPECT_FALSE(target_.TryBegin(At(1261), false)) << "the other still runs";
}

TEST_F(PassTurnsTest, ASeatThatLeavesIsNotWaitedFor) {
  Run(target_, 0, 100);
  {
    Seat third(turns_, wakeup_);
    Run(third, 100, 110, /*goes_on=*/true);
    EXPECT_FALSE(target_.TryBegin(At(110), false));
  }
  EXPECT_TRUE(target_.TryBegin(At(111), false));
}

TEST(PassTurnsAloneTest, WithoutTurnsEveryPassBegins) {
  Wakeup wakeup;
  Seat seat(nullptr, wakeup);
  EXPECT_TRUE(seat.TryBegin(absl::UnixEpoch(), true));
  EXPECT_TRUE(seat.TryBegin(absl::UnixEpoch(), true));
  seat.End(absl::UnixEpoch(), /*goes_on=*/true, true);
  EXPECT_FALSE(seat.refused());
}

}  // namespace
}  // namespace foretoken
