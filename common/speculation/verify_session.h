// VerifySession: one request at a verifier, independent of the network: plain
// structs, the same in one process and over gRPC (verifier.proto).
//
//   Open -> OnOpened -> OnPrefilled -> (Ask -> OnRound)* -> destruction
//
// Answers go to a listener, which serves blocking callers and streams alike. A
// session that ends by itself ends with OnFailed, or with an answer whose
// finish reason is not kNone.
#ifndef FORETOKEN_COMMON_SPECULATION_VERIFY_SESSION_H_
#define FORETOKEN_COMMON_SPECULATION_VERIFY_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/speculation/round.h"

namespace foretoken {

// Receives the events of one session. Called by one thread at a time, which it
// must not block: in a verifier the engine thread, or another one for an
// OnFailed before OnOpened. OnFailed is the last event.
class VerifyListener {
 public:
  virtual ~VerifyListener() = default;
  virtual void OnOpened(const std::string& numerics_fingerprint) = 0;
  virtual void OnPrefilled(PrefillResult result) = 0;
  virtual void OnRound(RoundResult result) = 0;
  virtual void OnFailed(absl::Status status) = 0;
};

// Destruction closes the session and frees its resources, even while it waits
// for an answer; the listener may still be called for work in progress.
class VerifySession {
 public:
  virtual ~VerifySession() = default;

  // Requests a round, which OnRound answers; one at a time. After an error
  // returned here, close the session; later errors of the round are reported to
  // OnFailed.
  virtual absl::Status Ask(RoundRequest request) = 0;
};

// The sessions of a verifier, independent of the network. Thread-safe.
class VerifySessions {
 public:
  virtual ~VerifySessions() = default;

  // Opens a session; OnOpened and OnPrefilled, or OnFailed, report the result,
  // possibly before Open returns. Aborted if the numerics fingerprint differs
  // from the request's, ResourceExhausted if too many sessions wait,
  // Unavailable when stopping.
  virtual absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request, std::shared_ptr<VerifyListener> listener) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_VERIFY_SESSION_H_
