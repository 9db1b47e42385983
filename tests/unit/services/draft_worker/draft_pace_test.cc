#include "services/draft_worker/core/draft_pace.h"

#include <gtest/gtest.h>

namespace foretoken::draft_worker {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(DraftPaceTest, IsTheTimeOfARoundByItsTokens) {
  DraftPace pace;
  EXPECT_EQ(pace.token_time(), absl::ZeroDuration());
  pace.Note(kStart, 100);  // the first round: what it committed took any time
  EXPECT_EQ(pace.token_time(), absl::ZeroDuration());
  pace.Note(kStart + absl::Milliseconds(12), 3);
  EXPECT_EQ(pace.token_time(), absl::Milliseconds(4));
  // A repeated ask commits nothing.
  pace.Note(kStart + absl::Milliseconds(14), 0);
  pace.Note(kStart + absl::Milliseconds(16), 1);
  EXPECT_EQ(pace.token_time(), absl::Milliseconds(4));
}

TEST(DraftPaceTest, FollowsTheRoundsAndHardlyAPause) {
  DraftPace pace;
  absl::Time now = kStart;
  const auto rounds = [&](int count, absl::Duration time) {
    for (int i = 0; i < count; ++i) pace.Note(now += time, 1);
    return pace.token_time();
  };
  EXPECT_EQ(rounds(20, absl::Milliseconds(8)), absl::Milliseconds(8));
  EXPECT_LE(rounds(1, absl::Hours(1)), absl::Milliseconds(11));
  EXPECT_LT(rounds(40, absl::Milliseconds(8)), absl::Milliseconds(9));
  EXPECT_GT(rounds(40, absl::Milliseconds(80)), absl::Milliseconds(70));
  EXPECT_LT(rounds(40, absl::Milliseconds(8)), absl::Milliseconds(9));
  // A clock that stands still, or goes back, is no pace below zero.
  now -= absl::Seconds(1);
  EXPECT_GE(rounds(1, absl::ZeroDuration()), absl::ZeroDuration());
}

}  // namespace
}  // namespace foretoken::draft_worker
