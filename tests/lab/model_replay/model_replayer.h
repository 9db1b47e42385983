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
// Windows make a large set affordable on a slow machine: each long output is
// decoded only for a few consecutive tokens at a random place. Sources receive
// the output before the window, untimed. The model does not read that output;
// the session holds the KV of another text of the same length, because the time
// of a pass does not depend on values.
//
// Source: using a recording as the arbiter follows `foretoken replay`; shares
// of time and Spec-Bench's mean of speeds follow Xia et al., arXiv:2401.07851.
// Owned by one thread, the backend's.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_REPLAYER_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_REPLAYER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/recorded_set.h"
#include "common/infer/backend.h"
#include "common/speculation/draft_tree.h"
#include "tests/lab/model_replay/model_session.h"
#include "tests/lab/model_replay/round_source.h"

namespace foretoken::model_replay {

// What one source did in a turn, beside plain decoding.
struct TurnResult {
  std::string id;
  std::string category;
  int64_t length = 0;  // tokens of the output, without the one from prefill
  // Tokens decoded by the source, and by plain decoding. Without windows both
  // are `length`; a source's last round may exceed its window.
  int64_t tokens = 0;
  int64_t plain_tokens = 0;
  int64_t rounds = 0;
  int64_t nodes = 0;  // drafted, over all rounds
  // Seconds. Those of plain and speculative decoding begin after prefill. With
  // windows, nothing is prefilled.
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

struct Windows {
  int64_t tokens = 0;  // decoded of each longer output; 0: whole outputs
  uint64_t seed = 0;   // of where they begin
  // Index of each turn in its file, which determines its window, so that a
  // selection of turns decodes the same windows as the whole file. Empty: the
  // turn's index in the set.
  std::vector<size_t> places;
};
// Output tokens [begin, end) of a turn are decoded. Token 0 is prefill's.
struct Window {
  size_t begin = 1;
  size_t end = 1;
};
// The window of turn `index`, whose output has `size` tokens. Every begin from
// which a whole window fits is equally likely, so the first and last tokens of
// an output are decoded less often than the others.
Window WindowOf(const Windows& windows, size_t index, size_t size);

class ModelReplayer {
 public:
  // All must outlive the replayer. A tree plus one row must fit into a pass.
  // With windows, the backend should reuse prefixes: else every turn computes
  // the KV before its window, untimed.
  ModelReplayer(Backend& backend, std::vector<RoundSource*> sources,
                int max_tree_nodes, const Windows& windows = {})
      : backend_(backend),
        sources_(std::move(sources)),
        max_tree_nodes_(max_tree_nodes),
        windows_(windows) {}

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
  // Opens a session with the text before the window committed. With windows, it
  // is the stand-in text, cut to the same length.
  absl::StatusOr<std::unique_ptr<ModelSession>> OpenBefore(
      const RecordedTurn& turn, const Window& window);
  // Both decode the window of a turn, with all before it committed.
  absl::StatusOr<double> Plain(ModelSession& session, const RecordedTurn& turn,
                               const Window& window);
  absl::Status Speculative(ModelSession& session, RoundSource& source,
                           size_t index, const RecordedTurn& turn,
                           const Window& window, TurnResult& result);
  // Begins a request of the source, up to the window, and times its work on the
  // prompt.
  absl::Status StartSource(RoundSource& source, size_t index,
                           const RecordedTurn& turn, const Window& window,
                           TurnResult& result);
  // Lets the backend compute the KV of the text that stands in for all others.
  absl::Status FillPrefixCache(const RecordedSet& set);
  // Runs `drafting` and adds its time to the result.
  absl::Status Timed(absl::FunctionRef<absl::Status()> drafting,
                     TurnResult& result);

  Backend& backend_;
  const std::vector<RoundSource*> sources_;
  const int max_tree_nodes_;
  const Windows windows_;
  std::vector<TokenId> stand_in_;  // text whose KV stands in for all others
  DraftTree tree_;
  std::vector<TokenId> tokens_;   // rows of a pass
  std::vector<int32_t> parents_;  // parents of the rows
  std::vector<int32_t> path_;     // accepted path
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_REPLAYER_H_
