// Drafter: proposes a token tree for the next round of one request.
//
// The replay tool and the services drive every model-free drafter through this
// one interface, so that what is measured is what runs.
//
//   StartRequest -> (Draft -> Commit)* -> EndRequest    and again for the next
//   request
//
// A drafter sees committed tokens only: never the future, and never, unless its
// options say so, another request's prompt. State is of two kinds: the
// request's own, which StartRequest drops, and shared state (history, pool),
// which serves later requests. Whether committed output becomes shared state is
// an option of the drafter: replay's "cold" makes drafters that keep nothing,
// "online" ones that do. Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/drafter_id.h"

namespace foretoken {

// A proposed tree; parents precede children, equal siblings are one node.
// Reused between rounds, so that drafting allocates nothing in the steady
// state.
struct DraftTree {
  std::vector<TokenId> tokens;
  std::vector<int32_t>
      parents;               // kRootParent hangs on the last committed token
  std::vector<float> probs;  // estimated probability that the whole path to
                             // this node is accepted, 0..1
  // The part of the drafter that each node comes from; empty: the drafter has
  // no parts.
  std::vector<DrafterId> parts;

  int size() const { return static_cast<int>(tokens.size()); }
  void Clear() {
    tokens.clear();
    parents.clear();
    probs.clear();
    parts.clear();
  }
  // Index of the new node.
  int32_t Add(TokenId token, int32_t parent, float prob) {
    tokens.push_back(token);
    parents.push_back(parent);
    probs.push_back(prob);
    return size() - 1;
  }
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // A new request whose prompt (BOS included) is `prompt`. State of the
  // request before is dropped; shared state (history, pool) stays.
  virtual void StartRequest(absl::Span<const TokenId> prompt) = 0;

  // The last round committed `tokens`, bonus included: tokens.size() - 1 draft
  // tokens were accepted. The first call after StartRequest holds the token
  // that prefill gave and follows no draft.
  virtual void Commit(absl::Span<const TokenId> tokens) = 0;

  // Replaces `tree` by a draft of at most `max_nodes` nodes for what follows
  // the committed tokens. May be empty.
  virtual void Draft(int max_nodes, DraftTree& tree) = 0;

  // Why the last Draft had nothing to go by: a store that could not be asked.
  // OK for a draft that is empty because nothing follows.
  virtual absl::Status DraftStatus() const { return absl::OkStatus(); }

  // The request is over: its committed output becomes shared state where the
  // drafter keeps any. StartRequest and the destructor do it where it was not
  // called.
  virtual void EndRequest() {}

  // Adds the output of a finished request, its end token included where it had
  // one, to the shared state; nothing where the drafter has none. Not between
  // StartRequest and the request's last Commit.
  virtual void AddHistory(absl::Span<const TokenId> output) {
    static_cast<void>(output);
  }

  // Drops what was kept from earlier requests and by AddHistory. The next call
  // is AddHistory or StartRequest.
  virtual void ForgetShared() {}

  // Bytes held for the present request, and for all requests together, and the
  // number of tokens that the shared state stands for. Memory-mapped priors are
  // not counted.
  virtual size_t RequestBytes() const { return 0; }
  virtual size_t SharedBytes() const { return 0; }
  virtual int64_t SharedTokens() const { return 0; }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFTER_H_
