// Statistics from the rounds of all requests: the acceptance of nodes by their
// claimed probability, whether a drafter's answers are worth waiting for, and
// the current pace of rounds.
//
// Hints only: they decide which nodes a tree has, never what is committed.
// Bounded: a fixed table. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_DRAFT_ESTIMATES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_DRAFT_ESTIMATES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/draft_tree.h"
#include "services/orchestrator/core/drafters/draft_source.h"
#include "services/orchestrator/core/economics/round_pace.h"

namespace foretoken::orchestrator {

// Number of `committed` tokens that the draft's best path matches, from the
// root.
int64_t MatchedDepth(const DraftTree& tree,
                     absl::Span<const TokenId> committed);

// Number of `committed` tokens that the draft's best path matches. If it
// matches all of them, plus the number of further tokens that the draft's own
// probabilities promise below that path.
double ExpectedDepth(const DraftTree& tree,
                     absl::Span<const TokenId> committed);

class DraftEstimates {
 public:
  // The corrected probability of every path of `tree`, [tree.size()]: along the
  // path, each node's chance given its parent is the observed rate of nodes of
  // this drafter, depth and claimed chance; the claim itself if few were seen.
  // Parents must precede children.
  //
  // `model`: what a draft model answered for the same round, if one did. Where
  // it goes on after the parent, the chance is the observed rate of nodes that
  // it, too, proposes with as high a claim, or that it leaves out for others of
  // as high claims.
  void Correct(DrafterId id, const DraftTree& tree, std::vector<float>& probs,
               const DraftTree* model = nullptr) const;

  // Counts every node whose parent was committed.
  void Learn(DrafterId id, const DraftTree& tree,
             absl::Span<const TokenId> committed,
             const DraftTree* model = nullptr);

  // Records that the drafter's answer added `gain` accepted tokens that no
  // other gave, and that it made the round longer by `wait`; negative where it
  // lost tokens or time was saved. `hinted`: accepted tokens that were expected
  // without it, 0 if it was asked without hints.
  void NoteGain(DrafterId id, double hinted, double gain, absl::Duration wait,
                absl::Time now);

  // False if rounds of `round_time` and `tokens_per_round` tokens are expected
  // to yield more tokens per second without this drafter. True until enough is
  // known of rounds with about as many hinted tokens. What is known of a
  // drafter that is not asked fades towards the best that was seen of it: the
  // load or the texts may have changed.
  bool IsWorthItsTime(DrafterId id, double hinted, absl::Duration round_time,
                      double tokens_per_round, absl::Time now) const;

  // The time that the drafter takes to read `tokens` tokens before its first
  // draft, by the texts that it has read; zero if there were none.
  void NoteTextRead(DrafterId id, const TextRead& read);
  absl::Duration ReadTime(DrafterId id, int64_t tokens) const;

  // Pace of the requests that weigh their drafts.
  SharedPace& pace() { return pace_; }

 private:
  static constexpr int kDepths = 7;
  static constexpr int kClaims = 10;
  static constexpr int kOpinions = 4;  // of each kind
  // A draft model's opinion of another drafter's node.
  struct Opinion {
    enum Kind { kNone, kProposes, kLeavesOut };
    Kind kind = kNone;
    float claim = 0;  // of the node, or of those that it proposes in its place
  };
  struct Cell {
    float seen = 0;
    float right = 0;
  };
  static constexpr int kHintClasses = 7;
  struct Worth {
    int64_t rounds = 0;
    double gain = 0;          // tokens per round
    double wait_seconds = 0;  // per round
    // The most and the least that these averages were.
    double most_gain = 0;
    double least_wait_seconds = 0;
    absl::Time at;  // of the last round
  };

  static size_t CellOf(DrafterId id, int64_t depth, float claim);
  static size_t JointCellOf(DrafterId id, float chance, const Opinion& opinion);
  static std::vector<Opinion> OpinionsOf(const DraftTree& tree,
                                         const DraftTree* model);
  static size_t WorthOf(DrafterId id, double hinted);
  // Lets `worth` fade towards its best until `now`.
  static void Forgive(absl::Time now, Worth& worth);
  float ChanceOf(DrafterId id, int64_t depth, float claim) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `chance`, corrected by what the draft model says of the node.
  float JointChanceOf(DrafterId id, float chance, const Opinion& opinion) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Count(bool right, Cell& cell);

  SharedPace pace_;
  mutable absl::Mutex mu_;
  std::array<Cell, kDrafterNames.size() * kDepths * kClaims> cells_
      ABSL_GUARDED_BY(mu_);
  std::array<Cell, kDrafterNames.size() * kClaims * kOpinions * 2> joint_cells_
      ABSL_GUARDED_BY(mu_);
  std::array<Worth, kDrafterNames.size() * kHintClasses> worth_
      ABSL_GUARDED_BY(mu_);
  std::array<double, kDrafterNames.size()> read_seconds_
      ABSL_GUARDED_BY(mu_) = {};
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_DRAFT_ESTIMATES_H_
