#include "common/drafting/draft_session.h"

#include "absl/types/span.h"

namespace foretoken {

void CommitRound(const DraftRound& round, Drafter& drafter) {
  const absl::Span<const TokenId> tokens = round.committed;
  // A tree gives its accepted path and one more token.
  const size_t given = round.verified.path.size() + 1;
  if (round.verified.candidates.empty() || !drafter.reads_candidates() ||
      given > tokens.size()) {
    if (!tokens.empty()) drafter.Commit(tokens);
    return;
  }
  // Tokens of rounds that were not reported one by one.
  const size_t earlier = tokens.size() - given;
  if (earlier > 0) drafter.Commit(tokens.first(earlier));
  drafter.Commit(tokens.last(given));
  drafter.Observe(round.verified);
}

}  // namespace foretoken
