// InProcessVerifier: the orchestrator's Verifier straight on a VerifyEngine,
// on the caller's thread.
//
// Owned by one thread, the engine's. Several of them may share an engine: a
// pass that one of them runs serves all, and answers wait until asked for.
#ifndef FORETOKEN_TESTS_SUPPORT_IN_PROCESS_VERIFIER_H_
#define FORETOKEN_TESTS_SUPPORT_IN_PROCESS_VERIFIER_H_

#include <memory>
#include <optional>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "services/orchestrator/core/verifiers/verifier.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::testing {

// Runs passes and keeps each session's last answer for whoever asks.
class EngineDriver {
 public:
  // `engine` must outlive this object.
  explicit EngineDriver(verifier::VerifyEngine& engine) : engine_(engine) {}

  verifier::VerifyEngine& engine() { return engine_; }

  // Runs passes until `session` has its answer.
  absl::StatusOr<PrefillResult> WaitForPrefill(SessionId session);
  absl::StatusOr<RoundResult> WaitForRound(SessionId session);
  void Forget(SessionId session) { answers_.erase(session); }

 private:
  struct Answer {
    std::optional<PrefillResult> prefill;
    std::optional<RoundResult> round;
    absl::Status failure;
  };
  // One pass; FailedPrecondition if the engine has nothing to do.
  absl::Status RunPass();

  verifier::VerifyEngine& engine_;
  std::unordered_map<SessionId, Answer> answers_;
};

class InProcessVerifier final : public orchestrator::Verifier {
 public:
  // `driver` must outlive this object.
  explicit InProcessVerifier(EngineDriver& driver) : driver_(driver) {}
  ~InProcessVerifier() override { Close(); }

  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override;
  absl::StatusOr<RoundResult> Round(RoundRequest request,
                                    absl::Span<const TokenId> text) override;
  void Close() override;

 private:
  EngineDriver& driver_;
  std::optional<SessionId> session_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_IN_PROCESS_VERIFIER_H_
