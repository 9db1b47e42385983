// JacobiWindow: the draft model's lookahead branch, which makes new phrases.
//
// The window has W columns and, once full, N-1 levels: level 0 is the last
// token of the draft followed by a chain of W-1 guesses, and under each of
// these W rows hangs a column of N-2 deeper ones. Cell (l, j) guesses the token
// l + j after the last one. After a pass, the answers to the deepest level
// become the new deepest level, every other level replaces the one above it,
// and each column with its answer is a phrase of N tokens. The window advances
// one token per pass, as published, however many the draft gained. The first
// N-2 passes fill the levels, from a level 0 of W+N-3 guesses.
//
// Source: Fu et al. 2024, arXiv:2402.02057, "Lookahead Branch"; Ouroboros,
// arXiv:2402.13720, which gives it to the draft model.
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_JACOBI_WINDOW_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_JACOBI_WINDOW_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "services/draft_worker/core/draft_mode.h"

namespace foretoken::draft_worker {

class JacobiWindow {
 public:
  // `width` (W) at least 1, `phrase_tokens` (N) at least 2.
  JacobiWindow(int width, int phrase_tokens);

  // Depth of its deepest row below the last token.
  int64_t depth() const;

  bool started() const { return !levels_.empty(); }
  // The first guesses: `text` copied from its end, over and over if it is
  // short. Not empty.
  void Start(absl::Span<const TokenId> text);

  // Adds the window's rows below `root`, the row of the last token, whose
  // output is already requested.
  void LayOut(int32_t root, PassRows& rows);

  // `outputs`: by row, of the pass that LayOut prepared; `last`: that pass's
  // last token. Advances the window and appends the resulting phrases of N
  // tokens, column by column (none while the window fills).
  void Take(TokenId last, absl::Span<const SampledToken> outputs,
            std::vector<TokenId>& phrases);

 private:
  const int width_;
  const int phrase_tokens_;
  // levels_[l][j] is cell (l, j); all levels are equally wide; levels_[0][0]
  // is a placeholder for the last token.
  std::vector<std::vector<TokenId>> levels_;
  std::vector<int32_t> deepest_rows_;  // of the last LayOut, by column
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_JACOBI_WINDOW_H_
