// Lookahead decoding: the target drafts for itself. Every pass includes a
// window of guessed tokens; the target's tokens after them are n-grams for a
// pool, and the pool's n-grams that begin with the last committed token are the
// next draft.
//
// The window has W columns and, once full, N-1 levels: level 0 is the last
// committed token followed by a chain of W-1 guesses, and under each of these W
// rows hangs a column of N-2 deeper ones. Cell (l, j) guesses the token l + j
// after the last committed one. After a round the deepest level's answers are
// the new deepest level and every other one takes the place of the one above
// it, which is one Jacobi step for every n-gram: (level 0, ..., level N-2,
// answer) of a column is an n-gram of N tokens. The first N-2 rounds fill the
// levels, from a level 0 of W+N-3 guesses.
//
// Source: Fu et al. 2024, arXiv:2402.02057, "Lookahead Decoding" and "Lookahead
// Branch and Verification Branch".
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_LOOKAHEAD_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_LOOKAHEAD_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/phrase_pool.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/drafters/draft_source.h"

namespace foretoken::orchestrator {

class LookaheadSource final : public DraftSource {
 public:
  explicit LookaheadSource(const LookaheadOptions& options);

  DrafterId id() const override { return DrafterId::kLookahead; }
  bool needs_rows() const override { return true; }
  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override;
  void Ask(const DraftRound& round, absl::Span<const TokenId> text) override;
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override;

 private:
  // The target's answer to every cell of the deepest level; empty if a cell was
  // not among the rows.
  std::vector<TokenId> Answers(const VerifiedTree& verified) const;
  void Step(const std::vector<TokenId>& answers);
  void AddWindow(DraftTree& window) const;
  void AddCandidates(int max_nodes, DraftTree& tree);

  const LookaheadOptions options_;
  PhrasePool pool_;
  // levels_[l][j] is cell (l, j); all levels are equally wide; levels_[0][0]
  // stands for the last committed token.
  std::vector<std::vector<TokenId>> levels_;
  TokenId last_ = 0;  // committed
  int max_nodes_ = 0;
  std::vector<absl::Span<const TokenId>> newest_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_LOOKAHEAD_H_
