// Replay: how far every draft would have been accepted, without a model.
//
// With greedy decoding a recording decides what a verifier would have said. The
// first output token is prefill's: it is given to the drafter and counted
// nowhere. Then, until the recording ends: the drafter sees prompt and tokens
// so far and gives a tree; the deepest path from the root that equals the
// continuation is accepted, plus one bonus token, never past the end. The end
// token is a token like any other.
//
// Accept length is tokens committed over rounds, summed over turns; plain
// decoding is 1.00. Times are of this thread, in CPU and wall time, less what
// reading the clock itself costs.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_REPLAY_H_
#define FORETOKEN_COMMON_DRAFTING_REPLAY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/recorded_set.h"

namespace foretoken {

struct ReplayCounts {
  int64_t turns = 0;
  int64_t tokens = 0;  // committed in rounds: output tokens less one a turn
  int64_t rounds = 0;
  // 1.00 where there was no round.
  double accept_length() const {
    return rounds == 0 ? 1.0 : static_cast<double>(tokens) / rounds;
  }
};

struct ReplaySetResult {
  std::string file;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  ReplayCounts all;
  ReplayCounts without_loops;  // turns that did not hit their length limit
  std::map<std::string, ReplayCounts> categories;
  int64_t tree_nodes = 0;             // drafted, over all rounds
  int64_t rounds_without_accept = 0;  // rounds that accepted no draft token

  double mean_tree_nodes() const {
    return all.rounds == 0 ? 0.0 : static_cast<double>(tree_nodes) / all.rounds;
  }
};

// Summed over all sets that one Replayer has replayed.
struct ReplayCosts {
  std::vector<float> draft_cpu_us;   // one value a round
  std::vector<float> draft_wall_us;  // one value a round
  double prompt_cpu_us = 0;          // StartRequest, all turns
  double insert_cpu_us = 0;          // Commit and EndRequest, all turns
  double insert_wall_us = 0;
  int64_t prompt_tokens = 0;
  int64_t inserted_tokens = 0;  // given to Commit
  double request_bytes = 0;     // at the end of each turn, summed
  int64_t request_tokens = 0;   // prompt and output, summed alike
  double history_bytes = 0;     // at the end of each set, summed
  int64_t history_tokens = 0;
};

// The value below which `share` (0..1) of the samples lie; 0 without samples.
float Percentile(std::vector<float> samples, double share);

// The nodes of `tree` that say what `continuation` says, root first: the
// deepest such path, no longer than the continuation. Parents precede children
// and equal siblings are one node. Replaces `path`.
void FindAcceptedPath(const DraftTree& tree,
                      absl::Span<const TokenId> continuation,
                      std::vector<int32_t>& path);

class Replayer {
 public:
  // `drafter` outlives the replayer. max_tree_nodes >= 1.
  Replayer(Drafter& drafter, int max_tree_nodes);

  // Called after every turn with the number of turns done in this set.
  using Progress = absl::FunctionRef<void(int64_t)>;

  // Replays one set. What the drafter kept from before is dropped first, then
  // the outputs of `history` are added: no set knows of another. Internal,
  // naming set and turn, for a draft that breaks the drafter's contract (too
  // many nodes, parents out of order); the status of a drafter that could not
  // ask its store, since a round without its draft would be measured.
  absl::StatusOr<ReplaySetResult> Replay(const RecordedSet& set,
                                         absl::Span<const RecordedSet> history,
                                         Progress progress);

  const ReplayCosts& costs() const { return costs_; }

 private:
  struct TurnCounts;
  absl::Status ReplayTurn(const RecordedTurn& turn, TurnCounts& counts);
  absl::Status CheckTree() const;

  Drafter& drafter_;
  const int max_tree_nodes_;
  DraftTree tree_;
  std::vector<int32_t> path_;
  ReplayCosts costs_;
  double clock_cpu_us_ = 0;  // what a pair of clock reads adds to a sample
  double clock_wall_us_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_REPLAY_H_
