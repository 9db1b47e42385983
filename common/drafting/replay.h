// Replay: measures how many tokens of every draft would have been accepted,
// without running a model.
//
// With greedy decoding a recording determines the verifier's answers. The first
// output token is prefill's: it is given to the drafter and not counted. Then,
// until the recording ends: the drafter sees the prompt and the tokens so far
// and returns a tree; the deepest path from the root that equals the
// continuation is accepted, plus one bonus token, never past the end. The end
// token counts like any other token.
//
// Accept length is tokens committed over rounds, summed over turns; plain
// decoding is 1.00. Times are this thread's CPU time and wall time, less the
// cost of reading the clocks.
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
  int64_t tokens = 0;  // committed in rounds: output tokens less one per turn
  int64_t rounds = 0;
  // [i]: rounds that committed i + 1 tokens; as long as the longest needs.
  std::vector<int64_t> rounds_by_length = {};
  // 1.00 if there was no round.
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
  int64_t tree_nodes = 0;             // drafted nodes, over all rounds
  int64_t rounds_without_accept = 0;  // rounds that accepted no draft token

  double mean_tree_nodes() const {
    return all.rounds == 0 ? 0.0 : static_cast<double>(tree_nodes) / all.rounds;
  }
};

// Time of one call, in microseconds.
struct ReplayTime {
  double cpu_us = 0;  // of this thread
  double wall_us = 0;
};

// Sums over all sets replayed by one Replayer.
struct ReplayCosts {
  std::vector<float> draft_cpu_us;   // one value per round
  std::vector<float> draft_wall_us;  // one value per round
  double prompt_cpu_us = 0;          // StartRequest, all turns
  double insert_cpu_us = 0;          // Commit and EndRequest, all turns
  double insert_wall_us = 0;
  int64_t prompt_tokens = 0;
  int64_t inserted_tokens = 0;  // passed to Commit
  double request_bytes = 0;     // at the end of each turn, summed
  int64_t request_tokens = 0;   // prompt and output, summed likewise
  double history_bytes = 0;     // at the end of each set, summed
  int64_t history_tokens = 0;
};

// The `share` quantile (0..1) of the samples; 0 without samples.
float Percentile(std::vector<float> samples, double share);

// Replaces `path` with the nodes of `tree` that match `continuation`, root
// first: the deepest such path, no longer than the continuation. Parents
// precede children, and equal siblings are one node.
void FindAcceptedPath(const DraftTree& tree,
                      absl::Span<const TokenId> continuation,
                      std::vector<int32_t>& path);

class Replayer {
 public:
  // `drafter` must outlive the replayer. max_tree_nodes >= 1.
  Replayer(Drafter& drafter, int max_tree_nodes);

  // Called after every turn with the number of finished turns of this set.
  using Progress = absl::FunctionRef<void(int64_t)>;

  // Replays one set. First drops the drafter's shared state and adds the
  // outputs of `history`, so that sets do not affect each other. Internal,
  // naming set and turn, if a draft breaks the Drafter contract (too many
  // nodes, parents out of order). If the drafter cannot query its store,
  // returns its status: a round without its draft would distort the figures.
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
  ReplayTime clocks_;  // overhead of the clock reads per sample
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_REPLAY_H_
