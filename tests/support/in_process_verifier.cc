#include "tests/support/in_process_verifier.h"

#include <utility>

#include "common/base/status_macros.h"

namespace foretoken::testing {

absl::Status EngineDriver::RunPass() {
  if (!engine_.HasWork()) {
    return absl::FailedPreconditionError("the engine has nothing to do");
  }
  verifier::PassReport report = engine_.RunPass();
  for (auto& [session, result] : report.prefilled) {
    answers_[session].prefill = std::move(result);
  }
  for (auto& [session, result] : report.rounds) {
    answers_[session].round = std::move(result);
  }
  for (auto& [session, status] : report.failures) {
    answers_[session].failure = std::move(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<PrefillResult> EngineDriver::WaitForPrefill(SessionId session) {
  while (true) {
    Answer& answer = answers_[session];
    FORETOKEN_RETURN_IF_ERROR(answer.failure);
    if (answer.prefill.has_value()) {
      return *std::exchange(answer.prefill, std::nullopt);
    }
    FORETOKEN_RETURN_IF_ERROR(RunPass());
  }
}

absl::StatusOr<RoundResult> EngineDriver::WaitForRound(SessionId session) {
  while (true) {
    Answer& answer = answers_[session];
    FORETOKEN_RETURN_IF_ERROR(answer.failure);
    if (answer.round.has_value()) {
      return *std::exchange(answer.round, std::nullopt);
    }
    FORETOKEN_RETURN_IF_ERROR(RunPass());
  }
}

absl::StatusOr<PrefillResult> InProcessVerifier::Open(
    SessionRequest request, absl::Span<const TokenId> text) {
  request.tokens.assign(text.begin(), text.end());
  Close();
  FORETOKEN_ASSIGN_OR_RETURN(session_,
                             driver_.engine().Open(std::move(request)));
  return driver_.WaitForPrefill(*session_);
}

absl::StatusOr<RoundResult> InProcessVerifier::Round(
    RoundRequest request, absl::Span<const TokenId>) {
  if (!session_.has_value()) {
    return absl::FailedPreconditionError("no session is open");
  }
  FORETOKEN_RETURN_IF_ERROR(
      driver_.engine().Submit(*session_, std::move(request)));
  return driver_.WaitForRound(*session_);
}

void InProcessVerifier::Close() {
  if (!session_.has_value()) return;
  // NotFound if a deadline or an error has closed it already.
  driver_.engine().Close(*session_).IgnoreError();
  driver_.Forget(*session_);
  session_.reset();
}

}  // namespace foretoken::testing
