#include "services/orchestrator/core/round/round_line.h"

#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

TEST(RoundLineTest, OneLineWithNodesByDrafterPathAndTimes) {
  RoundReport round;
  round.length = 120;
  round.draft_nodes = 24;
  round.accepted = 2;
  round.sources.resize(2);
  round.sources[0].id = DrafterId::kCrest;
  round.sources[0].outcome = DraftOutcome::kLate;
  round.sources[0].latency = absl::Milliseconds(5);
  round.sources[1].id = DrafterId::kFused;
  round.sources[1].outcome = DraftOutcome::kAnswered;
  round.sources[1].nodes = 24;
  round.sources[1].latency = absl::Microseconds(120);
  round.path_drafters = {1, 1};
  round.draft_time = absl::Milliseconds(5);
  round.verify_time = absl::Milliseconds(20);
  round.stats.pass_time = absl::Milliseconds(19);
  round.stats.pass_rows = 25;
  round.stats.pass_sessions = 1;
  EXPECT_EQ(RoundLine(7, round),
            "round 7 length 120 nodes 24 probes 0 from "
            "crest=0/late/5.00ms,fused=24/answered/0.12ms accepted 2 path "
            "fused,fused draft 5.00ms verify 20.00ms pass 19.00ms rows 25 "
            "sessions 1");
  EXPECT_EQ(RoundLine(1, RoundReport()),
            "round 1 length 0 nodes 0 probes 0 from - accepted 0 path - draft "
            "0.00ms verify 0.00ms pass 0.00ms rows 0 sessions 0");
}

}  // namespace
}  // namespace foretoken::orchestrator
