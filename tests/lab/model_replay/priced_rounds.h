// PricedRounds: mode auto as the orchestrator runs it. The trees of its
// drafters are merged and cut to the nodes that are worth their rows, given the
// pass costs measured here and how often similar nodes were accepted
// (RoundDrafting). Both are learned from the rounds of all requests, as in a
// server.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_PRICED_ROUNDS_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_PRICED_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/drafter_id.h"
#include "services/orchestrator/core/round/round_drafting.h"
#include "tests/lab/model_replay/round_source.h"

namespace foretoken::model_replay {

class PricedRounds final : public RoundSource {
 public:
  struct Source {
    DrafterId id;
    std::shared_ptr<Drafter> drafter;
  };
  // `sources`: in the order of the mode table, as RoundDrafting wants them.
  // `timing` holds the initial costs.
  PricedRounds(std::vector<Source> sources, PassTiming timing,
               int32_t vocab_size, int max_tree_nodes);

  absl::Status Start(size_t index, const RecordedTurn& turn) override;
  absl::Status Draft(DraftTree& tree) override;
  absl::Status Commit(absl::Span<const TokenId> tokens,
                      const VerifiedRound* round) override;
  void End() override;
  void Forget() override;

 private:
  const std::vector<Source> sources_;
  const int32_t vocab_size_;
  PassTiming timing_;
  orchestrator::DraftingOptions options_;
  std::vector<TokenId> text_;  // prompt and output so far of this request
  std::unique_ptr<orchestrator::RoundDrafting> drafting_;
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_PRICED_ROUNDS_H_
