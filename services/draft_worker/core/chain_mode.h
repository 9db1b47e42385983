// ChainMode, `draft_model:gamma=N`: a chain of gamma tokens from the draft
// model, one pass per token.
//
// Source: Leviathan, Kalman, Matias 2023, arXiv:2211.17192.
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_CHAIN_MODE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_CHAIN_MODE_H_

#include <cstdint>
#include <vector>

#include "services/draft_worker/core/draft_mode.h"

namespace foretoken::draft_worker {

class ChainMode final : public DraftMode {
 public:
  // gamma: tokens of the chain, 1..limits.max_rows.
  ChainMode(int gamma, const ModeLimits& limits);

  // The draft model's own probability of a token estimates its acceptance.
  int32_t logprobs() const override { return 0; }

  void Observe(const Observation&) override {}
  void Begin(absl::Span<const TokenId> text, const DraftRoom& room) override;
  void LayOut(int32_t root, int32_t kept, PassRows& rows) override {
    LayOutChain(root, kept, rows);
  }
  void Take(absl::Span<const SampledToken> outputs) override;
  void Finish(DraftTree& tree) override;

 private:
  std::vector<float> probs_;  // of the path to each token of the chain
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_CHAIN_MODE_H_
