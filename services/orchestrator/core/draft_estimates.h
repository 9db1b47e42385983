// Statistics from the rounds of all requests: the acceptance of nodes by their
// claimed probability, whether a drafter's answers are worth waiting for, and
// the current pace of rounds.
//
// Hints only: they decide which nodes a tree has, never what is committed.
// Bounded: a fixed table. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_ESTIMATES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_ESTIMATES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/drafter.h"
#include "services/orchestrator/core/draft_source.h"
#include "services/orchestrator/core/round_pace.h"

namespace foretoken::orchestrator {

// Number of `committed` tokens that the draft's best path matches, from the
// root.
int64_t MatchedDepth(const DraftTree& tree,
                     absl::Span<const TokenId> committed);

class DraftEstimates {
 public:
  // The corrected probability of every path of `tree`, [tree.size()]: along the
  // path, each node's chance given its parent is the observed rate of nodes of
  // this drafter, depth and claimed chance; the claim itself if few were seen.
  // Parents must precede children.
  void Correct(DrafterId id, const DraftTree& tree,
               std::vector<float>& probs) const;

  // Counts every node whose parent was committed.
  void Learn(DrafterId id, const DraftTree& tree,
             absl::Span<const TokenId> committed);

  // Records that the drafter's answer added `gain` accepted tokens that no
  // other gave, and that the round waited `wait` for it alone.
  void NoteGain(DrafterId id, double gain, absl::Duration wait);

  // False if rounds of `round_time` and `tokens_per_round` tokens are expected
  // to yield more tokens per second without this drafter.
  bool IsWorthItsTime(DrafterId id, absl::Duration round_time,
                      double tokens_per_round) const;

  // Pace of the requests that weigh their drafts.
  SharedPace& pace() { return pace_; }

 private:
  static constexpr int kDepths = 7;
  static constexpr int kClaims = 10;
  struct Cell {
    float seen = 0;
    float right = 0;
  };
  struct Worth {
    int64_t rounds = 0;
    double gain = 0;          // tokens per round
    double wait_seconds = 0;  // per round
  };

  static size_t CellOf(DrafterId id, int64_t depth, float claim);
  float ChanceOf(DrafterId id, int64_t depth, float claim) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  SharedPace pace_;
  mutable absl::Mutex mu_;
  std::array<Cell, kAskedDrafters * kDepths * kClaims> cells_
      ABSL_GUARDED_BY(mu_);
  std::array<Worth, kAskedDrafters> worth_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_ESTIMATES_H_
