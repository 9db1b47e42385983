#include "services/verifier/core/goodput_guard.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/flapping_arm.h"

namespace foretoken::verifier {
namespace {

constexpr DraftArm kArms[] = {DraftArm::kOff, DraftArm::kNarrow,
                              DraftArm::kWide};

// A verifier without noise, all of whose sessions follow the guard at once.
class GoodputGuardTest : public ::testing::Test {
 protected:
  // For each arm: milliseconds of a pass, and between passes; tokens of a
  // round.
  using PerArm = std::array<double, kDraftArms>;

  static double Of(const PerArm& values, DraftArm arm) {
    return values[static_cast<size_t>(arm)];
  }

  // Runs passes for `seconds`; returns the share of each arm.
  PerArm Run(int sessions, double seconds) {
    PerArm share{};
    const absl::Time end = now_ + absl::Seconds(seconds);
    while (now_ < end) {
      const DraftArm arm = guard_->arm();
      const absl::Time before = now_;
      GuardPass pass;
      pass.begin = now_ + absl::Milliseconds(Of(pause_ms_, arm));
      pass.end = pass.begin + absl::Milliseconds(Of(pass_ms_, arm));
      pass.rounds_share = Of(rounds_share_, arm);
      pass.sessions = pass.followers = sessions;
      pass.rounds[static_cast<size_t>(named_.value_or(arm))] = sessions;
      pass.tokens = static_cast<int64_t>(100 * sessions * Of(tokens_, arm));
      pass.goes_on = true;
      now_ = pass.end;
      guard_->Note(pass);
      share[static_cast<size_t>(arm)] +=
          absl::ToDoubleSeconds(now_ - before) / seconds;
    }
    return share;
  }

  // A pass with the round of one session that does not follow, alone.
  void RunOther(int followers) {
    GuardPass pass;
    pass.begin = now_;
    pass.end = now_ += absl::Milliseconds(10);
    pass.sessions = followers + 1;
    pass.followers = followers;
    pass.tokens = 100;
    pass.goes_on = true;
    guard_->Note(pass);
  }

  std::optional<GoodputGuard> guard_{std::in_place};
  absl::Time now_ = absl::FromUnixSeconds(1000);
  PerArm pass_ms_ = {10, 10, 10};
  PerArm pause_ms_ = {0, 0, 0};
  PerArm tokens_ = {1, 1, 1};
  PerArm rounds_share_ = {1, 1, 1};
  std::optional<DraftArm> named_;  // by rounds, in place of the guard's
};

TEST_F(GoodputGuardTest, EveryArmIsFoundWhereItIsTheBest) {
  for (const DraftArm best : kArms) {
    guard_.emplace();
    tokens_ = {1, 1, 1};
    tokens_[static_cast<size_t>(best)] = 1.2;
    Run(8, 5);
    EXPECT_GT(Of(Run(8, 60), best), 0.97)
        << kDraftArmNames[static_cast<size_t>(best)];
  }
}

TEST_F(GoodputGuardTest, ProbesGetRarerTheFartherArmsAreApart) {
  tokens_ = {1, 1, 1.1};
  Run(8, 30);
  const double near = 1 - Of(Run(8, 300), DraftArm::kWide);
  guard_.emplace();
  tokens_ = {1, 1, 1.8};
  Run(8, 30);
  const double far = 1 - Of(Run(8, 300), DraftArm::kWide);
  EXPECT_GT(near, 0);
  EXPECT_LT(near, 0.05);
  EXPECT_LT(far, near / 4);
}

TEST_F(GoodputGuardTest, AChangeOfGoodputIsNoticed) {
  tokens_ = {1, 1.2, 1.4};
  Run(8, 60);
  EXPECT_EQ(guard_->arm(), DraftArm::kWide);
  tokens_ = {1, 0.8, 0.6};  // another text, that drafters do not know
  Run(8, 10);
  EXPECT_GT(Of(Run(8, 30), DraftArm::kOff), 0.9);
}

TEST_F(GoodputGuardTest, APassOfOtherSessionsAloneSaysNothingOfAProbe) {
  tokens_ = {1, 0.9, 0.7};
  int probes = 0;
  for (int pass = 0; pass < 3000; ++pass) {
    const DraftArm before = guard_->arm();
    Run(15, 0.01);
    if (guard_->arm() == before || guard_->arm() == DraftArm::kOff) continue;
    ++probes;
    RunOther(15);
  }
  EXPECT_GT(probes, 1);
  EXPECT_GT(Of(Run(15, 10), DraftArm::kOff), 0.9);
}

TEST_F(GoodputGuardTest, LoadsAreLearntApart) {
  tokens_ = {1, 1.5, 2};
  Run(1, 10);
  tokens_ = {1, 0.9, 0.7};
  Run(32, 10);
  EXPECT_GT(Of(Run(32, 10), DraftArm::kOff), 0.9);
  tokens_ = {1, 1.5, 2};
  // Three passes decide on the load; what was learnt holds at once.
  Run(1, 0.05);
  EXPECT_GT(Of(Run(1, 5), DraftArm::kWide), 0.97);
}

TEST_F(GoodputGuardTest, AnUnknownLoadStartsWithWhatThePriceOfRowsSays) {
  tokens_ = {1, 0.9, 0.7};
  Run(32, 10);
  EXPECT_EQ(guard_->arm(), DraftArm::kOff);
  Run(1, 0.03);
  EXPECT_EQ(guard_->arm(), DraftArm::kWide);
}

TEST_F(GoodputGuardTest, AnUnknownBusyVerifierStartsWithoutDrafts) {
  Run(32, 0.015);  // two passes of the last three decide on the load
  EXPECT_EQ(guard_->arm(), DraftArm::kOff);
}

// Half a second in which an arm looked bad is not believed for ever.
TEST_F(GoodputGuardTest, EveryArmIsTriedAgainSomeTime) {
  tokens_ = {1, 0.4, 0.3};
  Run(8, 60);
  EXPECT_EQ(guard_->arm(), DraftArm::kOff);
  tokens_ = {1, 1, 1.5};  // nothing that `off` shows
  Run(8, 120);
  EXPECT_GT(Of(Run(8, 30), DraftArm::kWide), 0.9);
}

// Drafters that are waited for, or that take the verifier's processors.
TEST_F(GoodputGuardTest, TimeBetweenPassesCounts) {
  tokens_ = {1, 1, 1.5};
  pause_ms_ = {0, 10, 10};
  Run(8, 10);
  EXPECT_GT(Of(Run(8, 30), DraftArm::kOff), 0.9);
}

TEST_F(GoodputGuardTest, TheTimeOfPromptsDoesNot) {
  // Prompts happen to arrive while there are drafts.
  tokens_ = {1, 1, 1.5};
  pass_ms_ = {10, 40, 40};
  rounds_share_ = {1, 0.25, 0.25};
  Run(8, 10);
  EXPECT_GT(Of(Run(8, 30), DraftArm::kWide), 0.9);
}

// Orchestrators that do not take an arm up teach nothing about it.
TEST_F(GoodputGuardTest, RoundsUnderAnotherArmDoNotCount) {
  named_ = DraftArm::kWide;
  tokens_ = {2, 2, 1};  // of passes that happen while the guard says off
  Run(8, 30);
  EXPECT_GT(Of(Run(8, 300), DraftArm::kWide), 0.95);
}

TEST_F(GoodputGuardTest, SessionsThatDoNotFollowDoNotMoveIt) {
  for (int i = 0; i < 1000; ++i) {
    GuardPass pass;
    pass.begin = now_;
    pass.end = now_ += absl::Milliseconds(10);
    pass.sessions = 8;
    pass.tokens = i;
    pass.goes_on = true;
    guard_->Note(pass);
    EXPECT_EQ(guard_->arm(), DraftArm::kWide);
  }
  for (const double seconds : guard_->numbers().seconds) EXPECT_EQ(seconds, 0);
}

TEST_F(GoodputGuardTest, AClockThatStandsStillTeachesNothing) {
  for (int i = 0; i < 1000; ++i) {
    GuardPass pass;
    pass.begin = pass.end = now_;
    pass.sessions = pass.followers = 8;
    pass.rounds[static_cast<size_t>(guard_->arm())] = 8;
    pass.tokens = 8;
    pass.goes_on = true;
    guard_->Note(pass);
    EXPECT_EQ(guard_->arm(), DraftArm::kWide);
  }
}

TEST_F(GoodputGuardTest, TimeIsCountedByArm) {
  tokens_ = {1, 1.2, 0.8};
  const PerArm share = Run(8, 20);
  for (size_t arm = 0; arm < kDraftArms; ++arm) {
    EXPECT_NEAR(guard_->numbers().seconds[arm], 20 * share[arm], 0.02);
  }
}

TEST_F(GoodputGuardTest, ItFlapsWhenToldTo) {
  GoodputGuard flapping(GuardMode::kMeasure, testing::NextArm);
  GoodputGuard wide(GuardMode::kWide);
  std::array<int, kDraftArms> seen{};
  for (int i = 0; i < 9; ++i) {
    GuardPass pass;
    pass.begin = pass.end = now_;
    pass.sessions = pass.followers = 1;
    const DraftArm before = flapping.arm();
    flapping.Note(pass);
    wide.Note(pass);
    EXPECT_NE(flapping.arm(), before);
    EXPECT_EQ(wide.arm(), DraftArm::kWide);
    ++seen[static_cast<size_t>(flapping.arm())];
  }
  EXPECT_EQ(seen, (std::array<int, kDraftArms>{3, 3, 3}));
}

}  // namespace
}  // namespace foretoken::verifier
