// DraftSession: one request at a drafting service, independent of the network:
// plain structs, the same in one process and over gRPC (drafting.proto).
//
//   Open -> (Ask -> OnAnswer)* -> destruction
//
// A round carries the tokens committed since the last one and the result of the
// last verified tree, and requests a draft. Answers go to a listener, which
// serves blocking callers and streams alike. Drafts are hints: a failed session
// costs speed only.
#ifndef FORETOKEN_COMMON_DRAFTING_DRAFT_SESSION_H_
#define FORETOKEN_COMMON_DRAFTING_DRAFT_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/drafting/drafter.h"
#include "common/drafting/verified_tree.h"
#include "common/sampling/sampling_params.h"
#include "common/speculation/modes.h"

namespace foretoken {

// The first token is the key.
using Phrase = std::vector<TokenId>;

struct DraftOpen {
  std::vector<TokenId> tokens;  // prompt, on a replay also the output so far
  int64_t prompt_length = 0;    // of `tokens`, at least 1
  Mode mode;
  // The target's, with its seed: a draft model samples with the same noise.
  SamplingParams sampling;
  std::string cache_scope;  // text is shared within it only; empty: not shared
  // That of prefix pages, where the request shares nothing else. Not sent: a
  // service that keeps only pages is opened with it as its cache_scope.
  std::string page_scope;
  std::string request_id;   // for logs
  std::string traceparent;  // W3C header; empty: none
  // Raw SHA-256 of the tokenizer of `tokens`; empty: unknown.
  std::string tokenizer_fingerprint;
  // Warm start of a draft model's working pool, oldest first.
  std::vector<Phrase> phrases;
};

struct DraftRound {
  int64_t length = 0;              // after `committed`, prompt included
  std::vector<TokenId> committed;  // since the last round of this session
  VerifiedTree verified;           // gave the last tokens of `committed`
  int32_t max_nodes = 0;           // 0: commit only, no draft
  // Time after which the answer is useless to the caller.
  absl::Duration budget = absl::InfiniteDuration();
  // New phrases of another session's working pool of this request, for the
  // shared pool of its scope.
  std::vector<Phrase> phrases;
  // The other drafters' proposals for this round, with their estimates.
  DraftTree hints;
  // Cost of a token to the request at present, in time of its rounds. Zero:
  // unknown.
  absl::Duration token_time;
  // row_ms[i]: milliseconds by which draft node i + 1 lengthens the target's
  // pass; further nodes cost what the last entry says. Empty: unknown.
  std::vector<float> row_ms;
};

// Passes the round's tokens and its verified tree on to a drafter.
void CommitRound(const DraftRound& round, Drafter& drafter);

struct DraftAnswer {
  int64_t length = 0;  // the draft builds on this committed length
  DraftTree tree;
  std::vector<Phrase> phrases;  // new phrases of the working pool
  absl::Duration draft_time;
  bool shortened = false;  // its time ran out before its mode was done

  void Clear() {
    length = 0;
    tree.Clear();
    phrases.clear();
    draft_time = absl::ZeroDuration();
    shortened = false;
  }
};

// Receives the events of one session. Must not block its caller. Thread-safe.
class DraftListener {
 public:
  virtual ~DraftListener() = default;
  // Called once per round; `answer.length` identifies the round.
  virtual void OnAnswer(DraftAnswer answer) = 0;
  // The session has ended with this error; the last event.
  virtual void OnFailed(absl::Status status) = 0;
  // Whether further events are dropped because the caller has gone. It may
  // have gone a while before it can close the session.
  virtual bool gone() const { return false; }
};

// Owned by one thread at a time. Destruction does not block: the session closes
// after the requested rounds, or as soon as the service can, and the listener
// may still be called for them. A closed session, or one that was never opened,
// releases its listener.
class DraftSession {
 public:
  virtual ~DraftSession() = default;

  // Requests a round; returns at once, or after work that takes no longer than
  // a hand-off. OnAnswer may be called before Ask returns. OnFailed gets
  // FailedPrecondition if `round.length` is not the session's length plus
  // `committed`: reopen the session. Any other error ends it, too.
  virtual void Ask(DraftRound round) = 0;
};

// FailedPrecondition unless `round` follows a session of `length` tokens.
inline absl::Status CheckFollows(int64_t length, const DraftRound& round) {
  const int64_t want = length + static_cast<int64_t>(round.committed.size());
  if (round.length == want) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "round: committed_length is ", round.length, ", but the session has ",
      length, " tokens and this adds ", round.committed.size()));
}

// The sessions of a drafting service, independent of the network. Thread-safe.
class DraftSessions {
 public:
  virtual ~DraftSessions() = default;

  // Opens a session; returns at once. ResourceExhausted if too many sessions
  // wait to be opened. Other errors go to OnFailed: InvalidArgument by field,
  // Unimplemented for a mode drafted elsewhere, ResourceExhausted when full.
  virtual absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFT_SESSION_H_
