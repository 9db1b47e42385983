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
    ASSERT_TRUE(seat.TryBegin(At(from)));
    seat.End(At(to), goes_on);
  }

  std::shared_ptr<PassTurns> turns_ = std::make_shared<PassTurns>();
  Wakeup wakeup_;
  Seat target_{turns_, /*goes_first=*/false, wakeup_};
  Seat draft_{turns_, /*goes_first=*/true, wakeup_};
};

TEST_F(PassTurnsTest, OnePassRunsAtATime) {
  ASSERT_TRUE(target_.TryBegin(At(0)));
  EXPECT_FALSE(draft_.TryBegin(At(1)));
  EXPECT_TRUE(draft_.refused());
  target_.End(At(60), /*goes_on=*/false);
  EXPECT_FALSE(draft_.refused()) << "it is called";
  EXPECT_TRUE(draft_.TryBegin(At(60)));
  EXPECT_FALSE(target_.TryBegin(At(61)));
  draft_.End(At(70), /*goes_on=*/false);
  EXPECT_TRUE(target_.TryBegin(At(70)));
}

TEST_F(PassTurnsTest, DraftsGoFirstUntilTheTargetHasWaitedForAPass) {
  Run(target_, 0, 60);
  ASSERT_TRUE(draft_.TryBegin(At(61)));
  EXPECT_FALSE(target_.TryBegin(At(62)));
  for (int end = 71; end < 120; end += 10) {
    draft_.End(At(end), /*goes_on=*/true);
    EXPECT_FALSE(target_.refused());
    EXPECT_FALSE(target_.TryBegin(At(end)));
    EXPECT_TRUE(draft_.TryBegin(At(end)));
  }
  draft_.End(At(122), /*goes_on=*/true);
  // Whichever comes first.
  EXPECT_FALSE(draft_.TryBegin(At(122)));
  EXPECT_TRUE(target_.TryBegin(At(122)));
  target_.End(At(200), /*goes_on=*/true);
  EXPECT_FALSE(target_.TryBegin(At(200)));
  EXPECT_TRUE(draft_.TryBegin(At(200)));
}

// Else both would wait for the other's call.
TEST_F(PassTurnsTest, WhoYieldsCallsThoseItYieldsTo) {
  Run(target_, 0, 10);
  ASSERT_TRUE(draft_.TryBegin(At(11)));
  EXPECT_FALSE(target_.TryBegin(At(12)));
  draft_.End(At(20), /*goes_on=*/true);
  EXPECT_FALSE(target_.TryBegin(At(20)));
  EXPECT_TRUE(target_.refused());
  EXPECT_FALSE(draft_.TryBegin(At(25))) << "the target is overdue";
  EXPECT_FALSE(target_.refused());
  EXPECT_TRUE(target_.TryBegin(At(25)));
}

TEST_F(PassTurnsTest, NobodyWaitsForOneThatGaveUp) {
  Run(target_, 0, 100);
  Run(draft_, 100, 110, /*goes_on=*/true);
  EXPECT_FALSE(target_.TryBegin(At(110)));
  draft_.GiveUp();
  EXPECT_FALSE(target_.refused());
  EXPECT_TRUE(target_.TryBegin(At(111)));
}

TEST_F(PassTurnsTest, APassThatHangsStopsTheOthersForASecond) {
  Run(target_, 0, 60);
  ASSERT_TRUE(draft_.TryBegin(At(100)));
  EXPECT_FALSE(target_.TryBegin(At(200)));
  EXPECT_FALSE(target_.TryBegin(At(1199)));
  EXPECT_EQ(target_.retry_at(), At(1200));
  EXPECT_TRUE(target_.TryBegin(At(1200)));
  target_.End(At(1260), /*goes_on=*/false);
  EXPECT_FALSE(target_.TryBegin(At(1261))) << "the other still runs";
}

TEST_F(PassTurnsTest, ASeatThatLeavesIsNotWaitedFor) {
  Run(target_, 0, 100);
  {
    Seat third(turns_, /*goes_first=*/true, wakeup_);
    Run(third, 100, 110, /*goes_on=*/true);
    EXPECT_FALSE(target_.TryBegin(At(110)));
  }
  EXPECT_TRUE(target_.TryBegin(At(111)));
}

TEST(PassTurnsAloneTest, WithoutTurnsEveryPassBegins) {
  Wakeup wakeup;
  Seat seat(nullptr, /*goes_first=*/true, wakeup);
  EXPECT_TRUE(seat.TryBegin(absl::UnixEpoch()));
  EXPECT_TRUE(seat.TryBegin(absl::UnixEpoch()));
  seat.End(absl::UnixEpoch(), /*goes_on=*/true);
  EXPECT_FALSE(seat.refused());
}

}  // namespace
}  // namespace foretoken
