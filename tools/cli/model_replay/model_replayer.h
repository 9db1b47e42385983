// Model replay: the wall-clock gain of speculative decoding, measured with real
// forward passes of a model whose output does not matter, because a recording
// decides what is accepted (common/drafting/replay.h).
//
// For every recorded turn, after its prefill, which is the same on all sides:
//   plain        a pass of one row per further token;
//   speculative  rounds: a draft; a pass over the last committed
//                token and the draft's nodes; a commit of the path that equals
//                the recording, plus one token. Once for every source.
// All produce the same tokens, and they take turns in going first, so that
// other load on the machine affects all alike. All drafting counts towards the
// speculative side.
//
// Source: using a recording as the arbiter follows `foretoken replay`; shares
// of time and Spec-Bench's mean of speeds follow Xia et al., arXiv:2401.07851.
// Owned by one thread, the backend's.
#ifndef FORETOKEN_TOOLS_CLI_MODEL_REPLAY_MODEL_REPLAYER_H_
#define FORETOKEN_TOOLS_CLI_MODEL_REPLAY_MODEL_REPLAYER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/recorded_set.h"
#include "common/infer/backend.h"
#include "tools/cli/model_replay/model_session.h"
#include "tools/cli/model_replay/round_source.h"

namespace foretoken::model_replay {

// What one source did in a turn, beside plain decoding.
struct TurnResult {
  std::string id;
  std::string category;
  int64_t tokens = 0;  // without the one from prefill; the same on both sides
  int64_t rounds = 0;
  int64_t nodes = 0;  // drafted, over all rounds
  // Seconds. Those of plain and speculative decoding begin after prefill.
  double prefill = 0;
  double plain = 0;
  double speculative = 0;
  double indexing = 0;   // of speculative: the source's work on the prompt
  double drafting = 0;   // all of the source's work, indexing included
  double verifying = 0;  // passes and commits
};

// The part of a set to replay; 0: no limit.
struct Selection {
  int64_t max_requests = 0;  // the first ones
  int64_t requests_per_category = 0;
  int64_t max_new_tokens = 0;  // longer outputs are cut
};
// Reduces `set` to the selection; returns the previous index of each kept turn.
std::vector<size_t> Select(const Selection& selection, RecordedSet& set);

// InvalidArgument names the first turn that `config` cannot run: a token
// outside its vocabulary, or a text that leaves no room for `max_tree_nodes`
// within its maximum positions.
absl::Status CheckFits(const RecordedSet& set, const ModelConfig& config,
                       int max_tree_nodes);

class ModelReplayer {
 public:
  // All must outlive the replayer. A tree plus one row must fit into a pass.
  ModelReplayer(Backend& backend, std::vector<RoundSource*> sources,
                int max_tree_nodes)
      : backend_(backend),
        sources_(std::move(sources)),
        max_tree_nodes_(max_tree_nodes) {}

  // Whether turn `index` of the set is to be replayed.
  using Wanted = absl::FunctionRef<bool(size_t index)>;
  // Called after turn `index` of the set with a result for each source, in
  // their order; `prefill` and `plain` are the same in all. An error ends the
  // replay.
  using OnTurn = absl::FunctionRef<absl::Status(
      size_t index, absl::Span<const TurnResult> results)>;

  // Replays the wanted turns of a set that passed CheckFits, after a warm-up on
  // a part of the first turn. Errors are the backend's, the sources' and the
  // callback's, naming the turn.
  absl::Status Replay(const RecordedSet& set, Wanted wanted, OnTurn on_turn);

 private:
  absl::StatusOr<std::vector<TurnResult>> ReplayTurn(size_t index,
                                                     const RecordedTurn& turn);
  // Both decode a turn whose prompt is committed.
  absl::StatusOr<double> Plain(ModelSession& session, const RecordedTurn& turn);
  absl::Status Speculative(ModelSession& session, RoundSource& source,
                           size_t index, const RecordedTurn& turn,
                           TurnResult& result);
  // Runs `drafting` and adds its time to the result.
  absl::Status Timed(absl::FunctionRef<absl::Status()> drafting,
                     TurnResult& result);

  Backend& backend_;
  const std::vector<RoundSource*> sources_;
  const int max_tree_nodes_;
  DraftTree tree_;
  std::vector<TokenId> tokens_;   // rows of a pass
  std::vector<int32_t> parents_;  // parents of the rows
  std::vector<int32_t> path_;     // accepted path
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TOOLS_CLI_MODEL_REPLAY_MODEL_REPLAYER_H_
