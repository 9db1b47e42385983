#include "services/orchestrator/core/verifiers/progress_watch.h"

#include <optional>

#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

class ProgressWatchTest : public ::testing::Test {
 protected:
  // A probe `later` than the last, answered with passes_. Whether wait_ is of a
  // session that was left.
  bool Probe(absl::Duration later = kSecond,
             absl::Duration limit = absl::ZeroDuration()) {
    now_ += later;
    watch_.OnProbe(now_, passes_, limit);
    return watch_.IsLeft(wait_);
  }
  // Number of probes until wait_ is over, at most `most`.
  int ProbesUntilLeft(int most, absl::Duration limit = absl::ZeroDuration()) {
    for (int i = 1; i <= most; ++i) {
      if (Probe(kSecond, limit)) return i;
    }
    return most + 1;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::optional<int64_t> passes_ = 7;
  ProgressWatch watch_{ProgressOptions()};
  ProgressWatch::Wait wait_;
};

TEST_F(ProgressWatchTest, AWaitWithoutAPassEndsAtTheLimit) {
  wait_.Begin();
  // The first probe only finds that it waits.
  EXPECT_EQ(ProbesUntilLeft(20), 6);
  EXPECT_TRUE(watch_.avoided());
}

TEST_F(ProgressWatchTest, AVerifierOfLongPassesHasMoreTime) {
  wait_.Begin();
  EXPECT_EQ(ProbesUntilLeft(1000, absl::Minutes(10)), 601);
}

TEST_F(ProgressWatchTest, ASessionIsQueuedWhilePassesEnd) {
  wait_.Begin();
  // One pass in four seconds, for ten minutes.
  for (int i = 0; i < 600; ++i) {
    if (i % 4 == 0) ++*passes_;
    ASSERT_FALSE(Probe());
  }
  EXPECT_EQ(ProbesUntilLeft(20), 2);  // three silent seconds are over
}

TEST_F(ProgressWatchTest, OnlyOneWaitCounts) {
  // It is answered and asks again between every two probes, and something else
  // keeps the number of passes as it is.
  for (int i = 0; i < 100; ++i) {
    wait_.Begin();
    ASSERT_FALSE(Probe());
    wait_.End();
  }
  // Without a waiting session, a verifier is not silent.
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(Probe());
  EXPECT_FALSE(watch_.avoided());
}

TEST_F(ProgressWatchTest, TimeWithoutASessionDoesNotCountForTheNext) {
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(Probe());
  wait_.Begin();
  EXPECT_EQ(ProbesUntilLeft(20), 6);
}

TEST_F(ProgressWatchTest, ATimeWithoutProbesIsNoSilence) {
  wait_.Begin();
  EXPECT_FALSE(Probe());
  EXPECT_FALSE(Probe(absl::Hours(1)));  // counts as three seconds
  EXPECT_EQ(ProbesUntilLeft(20), 2);
}

TEST_F(ProgressWatchTest, AProbeThatWasRefusedSaysNothing) {
  wait_.Begin();
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(Probe());
    watch_.OnNoProbe();
  }
  EXPECT_EQ(ProbesUntilLeft(20), 6);
}

TEST_F(ProgressWatchTest, AnOlderVerifierIsNotJudged) {
  passes_.reset();
  wait_.Begin();
  EXPECT_EQ(ProbesUntilLeft(1000), 1001);
}

TEST_F(ProgressWatchTest, OneThatWasStartedAgainHasMoved) {
  wait_.Begin();
  for (int i = 0; i < 5; ++i) ASSERT_FALSE(Probe());
  passes_ = 0;
  EXPECT_EQ(ProbesUntilLeft(20), 6);
}

TEST_F(ProgressWatchTest, APassBringsTheVerifierBack) {
  wait_.Begin();
  ASSERT_LE(ProbesUntilLeft(20), 20);
  wait_.End();
  Probe();
  EXPECT_TRUE(watch_.avoided());
  ++*passes_;
  Probe();
  EXPECT_FALSE(watch_.avoided());
}

TEST_F(ProgressWatchTest, OneThatIsAvoidedIsTriedEverMoreRarely) {
  wait_.Begin();
  ASSERT_LE(ProbesUntilLeft(20), 20);
  for (const int pause : {5, 10, 20, 40, 60, 60}) {
    EXPECT_FALSE(watch_.MayTry(now_ + absl::Seconds(pause - 1)));
    now_ += absl::Seconds(pause);
    EXPECT_TRUE(watch_.MayTry(now_));
    watch_.OnTrial(now_);
    // The trial is silent, too, which begins nothing anew.
    watch_.OnProbe(now_, passes_, absl::ZeroDuration());
    watch_.IsLeft(wait_);
  }
}

}  // namespace
}  // namespace foretoken::orchestrator
