// DraftSession: one request at a drafting service, without its network: plain
// structs, the same in one process and behind gRPC (drafting.proto).
//
//   Open -> (Ask -> OnAnswer)* -> destruction
//
// A round says what was committed since the last one and how the last verified
// tree fared, and asks for a draft. Answers come to a listener, from which a
// blocking caller and a stream are fed alike. Drafts are hints; a session that
// fails costs speed only.
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
#include "common/sampling/sampling_params.h"
#include "common/speculation/modes.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

// The first token is the key.
using Phrase = std::vector<TokenId>;

struct DraftOpen {
  std::vector<TokenId> tokens;  // prompt, and on a replay the output so far
  int64_t prompt_length = 0;    // of `tokens`, at least 1
  Mode mode;
  // The target's, seed included: a draft model draws with the same noise.
  SamplingParams sampling;
  std::string cache_scope;  // bounds every sharing of text; empty: no sharing
  std::string request_id;   // for logs
  // Raw SHA-256 of the tokenizer that `tokens` come from; empty: not known.
  std::string tokenizer_fingerprint;
  // Warm start of a draft model's working pool, oldest first.
  std::vector<Phrase> phrases;
};

// How the last verified tree fared. Row 0 is the last committed token of then,
// row i + 1 is node i.
struct VerifiedTree {
  TokenTree tree;                   // empty: no tree was verified
  std::vector<TokenId> row_tokens;  // [tree.size() + 1]; -1 where dropped
  std::vector<int32_t> path;        // accepted nodes, root-first
};

struct DraftRound {
  int64_t length = 0;              // after `committed`, prompt included
  std::vector<TokenId> committed;  // since the last round of this session
  VerifiedTree verified;
  int32_t max_nodes = 0;  // 0: commit only, no draft wanted
  // After this the answer is of no use to the caller.
  absl::Duration budget = absl::InfiniteDuration();
  // What another session's working pool of this request gained, for the shared
  // pool of its scope.
  std::vector<Phrase> phrases;
};

struct DraftAnswer {
  int64_t length = 0;  // the draft builds on this committed length
  DraftTree tree;
  std::vector<Phrase> phrases;  // what the working pool gained
  absl::Duration draft_time;

  void Clear() {
    length = 0;
    tree.Clear();
    phrases.clear();
    draft_time = absl::ZeroDuration();
  }
};

// What becomes of one session. The caller waits: a listener hands over and
// returns. Thread-safe.
class DraftListener {
 public:
  virtual ~DraftListener() = default;
  // Once for every round; `answer.length` says to which.
  virtual void OnAnswer(DraftAnswer answer) = 0;
  // The session is gone: nothing more comes.
  virtual void OnFailed(absl::Status status) = 0;
};

// Owned by one thread at a time. Destruction closes the session once the rounds
// that were asked for are through, or as soon as the service can: it waits for
// neither, and the listener may still hear of them. A session that is closed,
// and one that is never opened, let go of their listener.
class DraftSession {
 public:
  virtual ~DraftSession() = default;

  // Asks for a round; returns at once, or after work that is as short as
  // handing it over would be. OnAnswer may come before that. FailedPrecondition
  // comes to OnFailed where `round.length` is not what the session holds plus
  // `committed`: it must be opened again. Any other error ends it too.
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

// What a drafting service is beside its network. Thread-safe.
class DraftSessions {
 public:
  virtual ~DraftSessions() = default;

  // Asks for a session; returns at once. ResourceExhausted where too many wait
  // for theirs. What else is wrong comes to OnFailed: InvalidArgument by field,
  // Unimplemented for a mode drafted elsewhere, ResourceExhausted when full.
  virtual absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFT_SESSION_H_
