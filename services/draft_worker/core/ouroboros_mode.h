// OuroborosMode: phrase-level drafting.
//
// In every pass up to W phrases of the working pool that start at the draft's
// last token are branches below it; the longest one that the draft model agrees
// with, and the model's own token after it, join the chain, until the chain has
// gamma tokens or more. In the same passes a lookahead branch makes new
// phrases. The finished chain ends in K branches, the newest phrases that start
// at its last token.
//
// From the verified tree the pool learns by candidate inspiration (phrases that
// draft and target agree on after the first difference) and candidate
// refinement (the target's corrections of the suffixes); PhrasePool holds the
// exact indices. A phrase agrees where the draft model's own token, drawn with
// the request's parameters and noise, is the phrase's: at temperature 0 the
// paper's greedy match, and at any other its extension.
//
// With options.by_price a draft has the passes that pay: a further one is
// expected to add the probability that the whole chain is accepted, times the
// tokens that a pass after an accepted chain has brought so far. A pass has as
// many phrases as are worth their rows, and the tree the nodes that are.
//
// Source: Ouroboros, arXiv:2402.13720, section 3 and Algorithm 1.
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_OUROBOROS_MODE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_OUROBOROS_MODE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/drafting/phrase_pool.h"
#include "common/speculation/modes.h"
#include "services/draft_worker/core/depth_acceptance.h"
#include "services/draft_worker/core/draft_mode.h"
#include "services/draft_worker/core/jacobi_window.h"

namespace foretoken::draft_worker {

class OuroborosMode final : public DraftMode {
 public:
  // options.MaxRows() <= limits.max_rows. Phrases of `warm_start` of another
  // length, or with a token that must not be proposed, are skipped.
  OuroborosMode(const OuroborosOptions& options, const ModeLimits& limits,
                absl::Span<const Phrase> warm_start);

  // A mode that weighs its passes estimates the chain by the draft model's own
  // probabilities; otherwise acceptance by depth will do, since a logprob for
  // every row of a wide pass takes noticeable time.
  int32_t logprobs() const override { return options_.by_price ? 0 : -1; }

  void Observe(const Observation& observation) override;
  void Begin(absl::Span<const TokenId> text, const DraftRoom& room) override;
  // Tokens that a further pass is expected to add, less the price of their rows
  // in the target's pass. Infinite where that is not weighed, and for the first
  // pass.
  double FurtherGain() const;
  bool done() const override;
  void LayOut(int32_t root, int32_t kept, PassRows& rows) override;
  void Take(absl::Span<const SampledToken> outputs) override;
  void Finish(DraftTree& tree) override;

  std::vector<Phrase> TakeGained() override;
  int64_t pool_phrases() const override { return pool_.size(); }
  ModeTotals totals() const override { return totals_; }

  const PhrasePool& pool() const { return pool_; }

 private:
  // Maximum gained phrases that wait for an answer; the oldest are dropped.
  static constexpr size_t kMaxGained = 256;

  bool IsProposable(absl::Span<const TokenId> phrase) const;
  void LearnPasses(absl::Span<const TokenId> committed);
  int PhrasesOfPass() const;
  bool PoolHas(absl::Span<const TokenId> phrase) const;
  void Gain(absl::Span<const TokenId> phrase);
  void LayOutPhrases(PassRows& rows);
  void LearnContext(absl::Span<const TokenId> text);
  void TakeChain(absl::Span<const SampledToken> outputs);
  void TakeWindow(absl::Span<const SampledToken> outputs);
  // Learn from the verified tree: `nodes` are those of the chain, as far as
  // the tree holds it; -1 in front stands for the last committed token.
  void Inspire(const VerifiedTree& verified, absl::Span<const int32_t> nodes);
  void RefineSuffixes(const VerifiedTree& verified, int32_t leaf);

  const OuroborosOptions options_;
  PhrasePool pool_;
  JacobiWindow window_;
  ModeTotals totals_;
  std::vector<Phrase> gained_;
  DepthAcceptance chain_acceptance_;
  DepthAcceptance suffix_acceptance_;
  // Passes after an accepted chain, and what was accepted of their tokens.
  int64_t passes_reached_ = 0;
  int64_t pass_tokens_ = 0;

  // The draft.
  std::vector<float> probs_;       // of the path to each token of the chain
  TokenId text_last_ = 0;          // the last committed token
  std::vector<Phrase> suffixes_;   // as drafted, each with its key
  int passes_ = 0;                 // passes it took
  std::vector<size_t> pass_ends_;  // length of the chain after each
  size_t context_end_ = 0;         // text before this is in the pool

  // State of the last LayOut.
  TokenId last_ = 0;      // the draft's last token
  int32_t last_row_ = 0;  // and its row
  bool has_window_ = false;
  int64_t phrases_laid_out_ = 0;
  absl::flat_hash_map<std::pair<int32_t, TokenId>, int32_t> phrase_rows_;

  mutable std::vector<absl::Span<const TokenId>> newest_;  // scratch
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_OUROBOROS_MODE_H_
