// VerifiedTree: what the target said about the last tree, for drafters that
// learn from it.
//
// Row 0 is the last token committed before that round, row i + 1 is node i.
#ifndef FORETOKEN_COMMON_DRAFTING_VERIFIED_TREE_H_
#define FORETOKEN_COMMON_DRAFTING_VERIFIED_TREE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/round.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

// The target's likeliest tokens after every row, by its raw logits.
struct CandidateRows {
  // One unit of `costs`: a sixteenth of a nat.
  static constexpr float kCostsPerNat = 16.0f;

  // Reads RoundResult::row_candidates; empty if they are.
  static CandidateRows Of(
      absl::Span<const std::vector<TokenLogprob>> candidates);

  bool empty() const { return width == 0; }

  int32_t width = 0;            // per row, 0..kMaxRowCandidates; 0: none
  std::vector<TokenId> tokens;  // [rows, width], best first; -1: no more
  std::vector<uint8_t> costs;   // [rows, width], logarithm of the best token's
                                // probability over this one's; at most 255
};

struct VerifiedTree {
  TokenTree tree;                   // empty: no tree was verified
  std::vector<TokenId> row_tokens;  // [tree.size() + 1]; -1: dropped
  std::vector<int32_t> path;        // accepted nodes, root-first
  CandidateRows candidates;         // empty, or of tree.size() + 1 rows
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_VERIFIED_TREE_H_
