// Verifier: one request's session on some verifier, as the orchestrator sees
// it. It handles the network, retries and moves to another verifier.
//
//   Open -> Round* -> Close
//
// Calls block. Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_VERIFIER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_VERIFIER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/speculation/round.h"

namespace foretoken::orchestrator {

inline constexpr absl::string_view kModelReplaced =
    "the verifiers have changed their model, try again";

// UNAVAILABLE: the session has no output yet, and its model was replaced.
inline absl::Status ModelReplacedError() {
  return absl::UnavailableError(kModelReplaced);
}
inline bool IsModelReplaced(const absl::Status& status) {
  return absl::IsUnavailable(status) && status.message() == kModelReplaced;
}

class Verifier {
 public:
  virtual ~Verifier() = default;

  // Opens the session and waits for the end of prefill. `text`, here and below,
  // is the prompt and everything committed since; it is read only during the
  // call and replaces request.tokens. After ModelReplacedError it may be called
  // again.
  virtual absl::StatusOr<PrefillResult> Open(
      SessionRequest request, absl::Span<const TokenId> text) = 0;
  virtual absl::StatusOr<RoundResult> Round(RoundRequest request,
                                            absl::Span<const TokenId> text) = 0;
  // Frees the session; harmless without one. Also done on destruction.
  virtual void Close() = 0;

  // Ends the call in progress, and all later ones, with Cancelled. The one
  // method that other threads may call.
  virtual void Cancel() {}
  // Number of moves to another verifier.
  virtual int64_t failovers() const { return 0; }
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_VERIFIER_H_
