// DraftMode: how one session drafts, pass by pass of the draft model.
//
//   Begin -> (LayOut -> a pass -> Take)* -> Finish      for every draft
//   Observe                                             between two of them
//
// A mode lays rows below the last committed token and reads the draft model's
// token after each. The chain it has drawn so far hangs there again in every
// pass: only committed tokens have KV of their own.
//
// Every mode grows one chain of tokens; modes differ in the rows beside and
// below it.
//
// What a mode lays out depends on its session alone, never on the sessions that
// share the pass: batching does not change a draft. Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_MODE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_MODE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/draft_session.h"
#include "common/infer/backend.h"
#include "common/speculation/modes.h"

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

// Limits of the service and its model, the same for all sessions except
// end_tokens.
struct ModeLimits {
  int32_t vocab_limit = 0;  // ids at or above are never proposed
  int32_t max_rows = 0;     // rows of a pass below the last committed token
  int32_t max_phrases = 1 << 13;  // of one working pool
  // The request's: nothing is drafted after these.
  std::vector<TokenId> end_tokens;
};

// Limits of one draft.
struct DraftRoom {
  int32_t max_nodes = 0;  // of the tree
  // Rows may lie this deep below the last committed token: the model's limit.
  int64_t max_depth = 0;
};

// The tokens committed since a draft was requested, and how the draft relates
// to them.
struct Observation {
  absl::Span<const TokenId> committed;  // since the draft was asked for
  // True if the draft built on the text that `committed` follows; else its
  // chain says nothing about these tokens.
  bool follows_draft = false;
  // The one round that lies between; nullptr where there were more, or none
  // verified a tree.
  const VerifiedTree* verified = nullptr;
};

// Sums since the session was opened.
struct ModeTotals {
  int64_t phrases_made = 0;   // that the working pool did not hold
  int64_t phrases_tried = 0;  // checked against the draft model
  int64_t phrase_tokens = 0;  // of those, taken into chains
  int64_t inspired = 0;       // phrases by candidate inspiration
  int64_t refined = 0;        // by candidate refinement
};

class DraftMode {
 public:
  // gamma: maximum tokens of the chain.
  DraftMode(int gamma, const ModeLimits& limits)
      : limits_(limits), gamma_(gamma) {}
  virtual ~DraftMode() = default;

  // True if the mode needs the logprob of every token.
  virtual bool wants_logprobs() const { return false; }

  // Learns from a round. Before Begin.
  virtual void Observe(const Observation& observation) = 0;

  // A new draft after `text` (not empty).
  virtual void Begin(absl::Span<const TokenId> text, const DraftRoom& room);
  // Continues the same draft with other limits.
  void Resume(const DraftRoom& room) { room_ = room; }

  // No pass could add to the draft.
  virtual bool done() const;
  // Adds this pass's rows and says which of them it reads; `root` is the row of
  // the last committed token, kRootParent where its KV is committed: the chain
  // is not empty then.
  virtual void LayOut(int32_t root, PassRows& rows) = 0;
  // The draft model's tokens after the rows of the pass, by row; no token (-1)
  // after those that LayOut did not ask for.
  virtual void Take(absl::Span<const SampledToken> outputs) = 0;
  // The tree drafted so far, at most max_nodes of it.
  virtual void Finish(DraftTree& tree) = 0;

  // The draft's chain, and the row that each of its tokens had in the last
  // pass, as far as they had one.
  absl::Span<const TokenId> chain() const { return chain_; }
  absl::Span<const int32_t> chain_rows() const { return chain_rows_; }

  // Phrases that the working pool gained since the last call, oldest first.
  virtual std::vector<Phrase> TakeGained() { return {}; }
  virtual int64_t pool_phrases() const { return 0; }
  virtual ModeTotals totals() const { return {}; }

 protected:
  // Adds the chain's rows below `root` and asks for the token after it; the row
  // of the chain's last token.
  int32_t LayOutChain(int32_t root, PassRows& rows);
  // Appends a token, unless it may not be proposed; that, or an end token, ends
  // the chain. False: not appended.
  bool Extend(TokenId token);

  const ModeLimits limits_;
  DraftRoom room_;
  std::vector<TokenId> chain_;
  std::vector<int32_t> chain_rows_;  // of the last pass
  bool ended_ = false;

 private:
  const int gamma_;
};

// `draft_model` or `ouroboros`; `warm_start` phrases oldest first.
// InvalidArgument, by parameter, where a pass needs more rows than `limits`
// has; Unimplemented for another mode.
absl::StatusOr<std::unique_ptr<DraftMode>> MakeDraftMode(
    const Mode& mode, const ModeLimits& limits,
    absl::Span<const Phrase> warm_start);

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_MODE_H_
