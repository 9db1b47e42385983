// RoundSource: the source of a model replay's drafts. All its work counts as
// drafting, and its caller times it.
//
//   Start -> Commit -> [Commit] -> (Draft -> Commit)* -> End
//
// and again for a next turn. The second Commit tells of the output before a
// window.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_ROUND_SOURCE_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_ROUND_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/drafter.h"
#include "common/drafting/recorded_set.h"

namespace foretoken::model_replay {

// Outcome of a round.
struct VerifiedRound {
  int32_t draft_rows = 0;
  int32_t accepted = 0;  // of draft_rows
  absl::Duration pass_time;
};

class RoundSource {
 public:
  virtual ~RoundSource() = default;

  // Starts a request: turn `index` of the replayed set.
  virtual absl::Status Start(size_t index, const RecordedTurn& turn) = 0;

  // Replaces `tree` with a draft for what follows the committed tokens.
  virtual absl::Status Draft(DraftTree& tree) = 0;

  // Reports committed `tokens`: by the round of the last draft, bonus included,
  // or, if `round` is null, by prefill or as the output before a window.
  virtual absl::Status Commit(absl::Span<const TokenId> tokens,
                              const VerifiedRound* round) = 0;

  virtual void End() = 0;

  // Drops state kept from earlier requests.
  virtual void Forget() {}
};

// A drafter's trees unchanged, as `foretoken replay` measures them.
class DrafterRounds final : public RoundSource {
 public:
  DrafterRounds(std::unique_ptr<Drafter> drafter, int max_tree_nodes)
      : drafter_(std::move(drafter)), max_tree_nodes_(max_tree_nodes) {}

  absl::Status Start(size_t, const RecordedTurn& turn) override {
    drafter_->StartRequest(turn.prompt);
    return absl::OkStatus();
  }
  absl::Status Draft(DraftTree& tree) override {
    drafter_->Draft(max_tree_nodes_, tree);
    return drafter_->DraftStatus();
  }
  absl::Status Commit(absl::Span<const TokenId> tokens,
                      const VerifiedRound*) override {
    drafter_->Commit(tokens);
    return absl::OkStatus();
  }
  void End() override { drafter_->EndRequest(); }
  void Forget() override { drafter_->ForgetShared(); }

 private:
  const std::unique_ptr<Drafter> drafter_;
  const int max_tree_nodes_;
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_ROUND_SOURCE_H_
