#include "services/orchestrator/core/economics/round_pace.h"

#include <vector>

#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

// A round of one node in a pass of 4 ms, alone in it.
RoundStats Alone() {
  RoundStats stats;
  stats.draft_rows = 1;
  stats.pass_rows = 2;
  stats.pass_sessions = 1;
  stats.pass_time = absl::Milliseconds(4);
  return stats;
}

// The same beside nine others, after as long in the queue.
RoundStats Crowded() {
  RoundStats stats = Alone();
  stats.pass_rows = 20;
  stats.pass_sessions = 10;
  stats.queue_time = absl::Milliseconds(4);
  return stats;
}

TEST(RoundPaceTest, NothingIsKnownBeforeTheFirstRound) {
  RoundPace pace;
  EXPECT_FALSE(pace.known());
  pace.Note(Alone(), 2, absl::Milliseconds(1), absl::Milliseconds(5));
  EXPECT_TRUE(pace.known());
  EXPECT_EQ(pace.verify_time(), absl::Milliseconds(5));
  EXPECT_EQ(pace.round_time(), absl::Milliseconds(6));
  EXPECT_EQ(pace.tokens(), 2.0);
}

// Drafts and the way take the same however long a pass is.
TEST(RoundPaceTest, AloneAllOutsideThePassIsOverhead) {
  RoundPace pace;
  for (int i = 0; i < 50; ++i) {
    pace.Note(Alone(), 2, absl::Milliseconds(1),
              absl::Milliseconds(i % 2 == 0 ? 5 : 7));
  }
  EXPECT_EQ(pace.load().passes_waited, 0.0) << "a slow way is no queue";
  EXPECT_NEAR(pace.load().overhead_ms, 3.0, 0.5);
  EXPECT_EQ(pace.load().other_rows, 0.0);
  EXPECT_EQ(pace.load().other_tokens, 0.0);
}

TEST(RoundPaceTest, BehindOthersTheRestOfTheRoundCostsAsRowsDo) {
  RoundPace pace;
  for (int i = 0; i < 50; ++i) {
    pace.Note(Crowded(), 3, absl::Milliseconds(1), absl::Milliseconds(9));
  }
  const PassLoad& load = pace.load();
  EXPECT_NEAR(load.other_rows, 18.0, 1e-6);
  EXPECT_NEAR(load.other_tokens, 27.0, 1e-6);
  // 4 ms behind others, 2 ms of way and drafts: a third of those is left.
  EXPECT_NEAR(load.overhead_ms, 2.0 / 3.0, 1e-6);
  EXPECT_NEAR(load.passes_waited, (4.0 + 4.0 / 3.0) / 4.0, 1e-6);
}

// Slow for being crowded, not for being far away: the shortest way counts.
TEST(RoundPaceTest, WhatACrowdAddsToTheWayIsWaiting) {
  RoundPace pace;
  for (int i = 0; i <= 50; ++i) {
    pace.Note(Crowded(), 3, absl::ZeroDuration(),
              absl::Milliseconds(i % 10 == 0 ? 9 : 13));
  }
  EXPECT_GT(pace.load().passes_waited, 1.5);
  EXPECT_LT(pace.load().overhead_ms, 0.2);
  // Unless it stays that long.
  for (int i = 0; i < 500; ++i) {
    pace.Note(Crowded(), 3, absl::ZeroDuration(), absl::Milliseconds(13));
  }
  EXPECT_NEAR(pace.load().overhead_ms, 5.0 - 5.0 * 4.0 / 9.0, 0.01);
}

TEST(SharedPaceTest, TheLatestHoldsForASecond) {
  SharedPace shared;
  absl::Time now = absl::FromUnixSeconds(1000);
  EXPECT_FALSE(shared.Recent(now).known());
  RoundPace pace;
  pace.Note(Alone(), 2, absl::Milliseconds(1), absl::Milliseconds(5));
  shared.Publish(pace, now);
  now += absl::Seconds(1);
  EXPECT_EQ(shared.Recent(now).round_time(), absl::Milliseconds(6));
  now += absl::Milliseconds(1);
  EXPECT_FALSE(shared.Recent(now).known());
}

// Also for one of 32 that always come in the same order.
TEST(SharedPaceTest, EveryRequestGetsItsTurn) {
  SharedPace shared;
  std::vector<int> turns(32, 0);
  for (int round = 0; round < 640; ++round) {
    for (int& mine : turns) mine += shared.NextTurn() % 32 == 0;
  }
  for (const int mine : turns) {
    EXPECT_GT(mine, 4);
    EXPECT_LT(mine, 50);
  }
}

}  // namespace
}  // namespace foretoken::orchestrator
