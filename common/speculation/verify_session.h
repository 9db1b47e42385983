// VerifySession: one request at a verifier, without its network: plain structs,
// the same in one process and behind gRPC (verifier.proto).
//
//   Open -> OnOpened -> OnPrefilled -> (Ask -> OnRound)* -> destruction
//
// Answers come to a listener, from which a blocking caller and a stream are fed
// alike. A session that ends by itself ends with OnFailed, or with an answer
// whose finish reason is not kNone.
#ifndef FORETOKEN_COMMON_SPECULATION_VERIFY_SESSION_H_
#define FORETOKEN_COMMON_SPECULATION_VERIFY_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/speculation/round.h"

namespace foretoken {

// What becomes of one session. Called by one thread at a time, which waits (in
// a verifier its engine thread): a listener hands over and returns. After
// OnFailed nothing more comes.
class VerifyListener {
 public:
  virtual ~VerifyListener() = default;
  virtual void OnOpened(const std::string& numerics_fingerprint) = 0;
  virtual void OnPrefilled(PrefillResult result) = 0;
  virtual void OnRound(RoundResult result) = 0;
  virtual void OnFailed(absl::Status status) = 0;
};

// Destruction closes the session and frees what it holds, whatever it waits
// for; the listener may still hear of what was under way.
class VerifySession {
 public:
  virtual ~VerifySession() = default;

  // Asks for a round, which OnRound answers; one at a time. An error returned
  // here leaves the session to be closed; what the verifier finds wrong with
  // the round later comes to OnFailed.
  virtual absl::Status Ask(RoundRequest request) = 0;
};

// A verifier beside its network. Thread-safe.
class VerifySessions {
 public:
  virtual ~VerifySessions() = default;

  // Asks for a session, which OnOpened and OnPrefilled answer, or OnFailed.
  // They may come before Open returns. Aborted for another numerics
  // fingerprint than the request's, ResourceExhausted where too many wait,
  // Unavailable when stopping.
  virtual absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request, std::shared_ptr<VerifyListener> listener) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_VERIFY_SESSION_H_
