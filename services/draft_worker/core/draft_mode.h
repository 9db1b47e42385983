// DraftMode: how one session drafts, pass by pass of the draft model.
//
//   Begin -> (LayOut -> a pass -> Take)* -> Finish      for every draft
//   Observe                                             between two of them
//
// A mode lays out rows below the last committed token and reads the draft
// model's token after each. A pass has rows for those tokens of the chain that
// have no KV yet: as a rule the last one alone.
//
// A draft has a chain: the path whose KV is kept between passes. Modes differ
// in the rows beside and below it; that of a tree is its likeliest path, and
// may turn to another branch from one pass to the next.
//
// What a mode lays out depends on its session and on prices, never on what
// other sessions draft in the same pass. Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_MODE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_MODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/draft_session.h"
#include "common/infer/backend.h"
#include "common/speculation/modes.h"
#include "services/draft_worker/core/draft_prices.h"

namespace foretoken::draft_worker {

// One session's rows of a pass.
struct PassRows {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  std::vector<int32_t> outputs;  // rows whose token is read, ascending

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t Add(TokenId token, int32_t parent) {
    tokens.push_back(token);
    parents.push_back(parent);
    return size() - 1;
  }
  void Clear() {
    tokens.clear();
    parents.clear();
    outputs.clear();
  }
};

// Limits of the service and its model, and what a mode must know of its
// request's sampling.
struct ModeLimits {
  int32_t vocab_limit = 0;  // ids at or above are never proposed
  int32_t max_rows = 0;     // rows of a pass below the last committed token
  int32_t max_phrases = 1 << 13;  // of one working pool
  // The request's end tokens; nothing is drafted after one.
  std::vector<TokenId> end_tokens;
  // The noise that the request's tokens are drawn with.
  float temperature = 0.0f;
  uint64_t seed = 0;
  // Rows of the draft model's passes are nearly free, as on a GPU.
  bool free_rows = false;
};

// Limits of one draft.
struct DraftRoom {
  int32_t max_nodes = 0;  // of the tree
  // Maximum row depth below the last committed token: the model's limit.
  int64_t max_depth = 0;
  DraftPrices prices = {};
};

// The tokens committed since a draft was requested, and how the draft relates
// to them.
struct Observation {
  absl::Span<const TokenId> committed;  // since the draft was asked for
  // True if the draft built on the text that `committed` follows; else its
  // chain says nothing about these tokens.
  bool follows_draft = false;
  // The tree of the one round in between; nullptr if there were several
  // rounds, or the round verified no tree.
  const VerifiedTree* verified = nullptr;
};

// Sums since the session was opened.
struct ModeTotals {
  int64_t phrases_made = 0;   // new to the working pool
  int64_t phrases_tried = 0;  // checked against the draft model
  int64_t phrase_tokens = 0;  // of those, appended to chains
  int64_t inspired = 0;       // phrases by candidate inspiration
  int64_t refined = 0;        // by candidate refinement
};

class DraftMode {
 public:
  // gamma: maximum tokens of the chain.
  DraftMode(int gamma, const ModeLimits& limits)
      : limits_(limits), gamma_(gamma) {}
  virtual ~DraftMode() = default;

  // What the mode needs to know of a row: -1: its token alone, 0: also that
  // token's logprob, n: also the n likeliest tokens.
  virtual int32_t logprobs() const { return -1; }

  // Learns from a round; call before Begin.
  virtual void Observe(const Observation& observation) = 0;

  // Begins a new draft after `text` (not empty).
  virtual void Begin(absl::Span<const TokenId> text, const DraftRoom& room);
  // The other drafters' proposals for the same round; between Begin and the
  // first pass.
  virtual void TakeHints(const DraftTree& hints) { static_cast<void>(hints); }
  // Continues the same draft with other limits.
  virtual void Resume(const DraftRoom& room) { room_ = room; }
  // The prices have changed; call before Take.
  void SetPrices(DraftPrices prices) { room_.prices = std::move(prices); }

  // True if no further pass could add to the draft, or none is expected to pay
  // where that is weighed.
  virtual bool done() const;
  // Adds this pass's rows and marks those whose token it reads. `root` is the
  // row of the last committed token, or kRootParent if its KV is committed:
  // the chain is then not empty. The first `kept` tokens of the chain, at most
  // keepable(), are in the KV cache too and get no rows; there are none where
  // `root` is a row.
  virtual void LayOut(int32_t root, int32_t kept, PassRows& rows) = 0;
  // Receives the draft model's tokens, by row; -1 for rows whose token LayOut
  // did not request.
  virtual void Take(absl::Span<const SampledToken> outputs) = 0;
  // Writes the tree drafted so far, at most max_nodes nodes.
  virtual void Finish(DraftTree& tree) = 0;

  // The draft's chain, and the rows in the last pass of its tokens after the
  // `kept` ones, for those that had one.
  absl::Span<const TokenId> chain() const { return chain_; }
  absl::Span<const int32_t> chain_rows() const { return chain_rows_; }
  // The most tokens of the chain that need no rows in the next pass.
  virtual size_t keepable() const {
    return chain_.empty() ? 0 : chain_.size() - 1;
  }

  // Phrases that the working pool gained since the last call, oldest first.
  virtual std::vector<Phrase> TakeGained() { return {}; }
  virtual int64_t pool_phrases() const { return 0; }
  virtual ModeTotals totals() const { return {}; }

 protected:
  // Adds the rows of the chain from its token `kept` on below `root` and
  // requests the token after it. Returns the row of the chain's last token.
  int32_t LayOutChain(int32_t root, int32_t kept, PassRows& rows);
  // Appends a token that may be proposed; any other token, and an end token,
  // ends the chain. False if not appended.
  bool Extend(TokenId token);
  // True if nothing is drafted after `token`.
  bool EndsText(TokenId token) const;
  // The draft model's own probability of a token that it drew, as an estimate
  // of its acceptance, in (0, 1].
  static float ProbabilityOf(const SampledToken& drawn);

  const ModeLimits limits_;
  DraftRoom room_;
  std::vector<TokenId> chain_;
  std::vector<int32_t> chain_rows_;  // of the last pass
  bool ended_ = false;

 private:
  const int gamma_;
};

// Creates `draft_model`, `ouroboros`, or for `auto` what the draft worker adds
// to its tree: a tree of the draft model (tree_mode.h). `warm_start` phrases
// are oldest first. InvalidArgument names the parameter if a pass needs more
// rows than `limits` allows; Unimplemented for another mode.
absl::StatusOr<std::unique_ptr<DraftMode>> MakeDraftMode(
    const Mode& mode, const ModeLimits& limits,
    absl::Span<const Phrase> warm_start);

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_MODE_H_
