// Drafter: proposes a token tree for the next round of one request.
//
// The replay tool and the services drive every model-free drafter through this
// interface, so that replay measures exactly what the services run.
//
//   StartRequest -> (Draft -> Commit -> Observe?)* -> EndRequest
//
// repeated per request.
//
// A drafter sees committed tokens only: never the future and, unless its
// options say so, never another request's prompt. It has two kinds of state:
// that of the request, which StartRequest drops, and shared state (history,
// pool), which serves later requests. An option of the drafter decides whether
// committed output becomes shared state: replay's "cold" drafters keep nothing,
// its "online" drafters do. Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_DRAFTER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/draft_tree.h"

namespace foretoken {

struct VerifiedTree;

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Starts a request whose prompt (BOS included) is `prompt`. Drops the state
  // of the previous request; keeps shared state (history, pool).
  virtual void StartRequest(absl::Span<const TokenId> prompt) = 0;

  // Reports the tokens committed by the last round, bonus included:
  // tokens.size() - 1 draft tokens were accepted. The first call after
  // StartRequest holds the token from prefill and follows no draft.
  virtual void Commit(absl::Span<const TokenId> tokens) = 0;

  // Reports the verified tree that the tokens of the last Commit come from,
  // with the target's candidates, if the drafter reads them.
  virtual void Observe(const VerifiedTree& verified) {
    static_cast<void>(verified);
  }
  virtual bool reads_candidates() const { return false; }

  // Replaces `tree` with a draft of at most `max_nodes` nodes for what follows
  // the committed tokens. May be empty.
  virtual void Draft(int max_nodes, DraftTree& tree) = 0;

  // Error of the last Draft, if its store could not be queried. OK if a draft
  // is empty only because nothing follows.
  virtual absl::Status DraftStatus() const { return absl::OkStatus(); }

  // Ends the request; its committed output becomes shared state if the drafter
  // keeps any. StartRequest and the destructor call it if the caller has not.
  virtual void EndRequest() {}

  // Adds the output of a finished request, including its end token if it had
  // one, to the shared state, if there is any. Must not be called between
  // StartRequest and the request's last Commit.
  virtual void AddHistory(absl::Span<const TokenId> output) {
    static_cast<void>(output);
  }

  // Drops everything kept from earlier requests and from AddHistory. The next
  // call must be AddHistory or StartRequest.
  virtual void ForgetShared() {}

  // Bytes held for the current request and for all requests together, and the
  // number of tokens in the shared state. The static prior, which all requests
  // share, is not counted.
  virtual size_t RequestBytes() const { return 0; }
  virtual size_t SharedBytes() const { return 0; }
  virtual int64_t SharedTokens() const { return 0; }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFTER_H_
