// SessionVerifier: the orchestrator's Verifier on the sessions of one verifier,
// without failover.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_SESSION_VERIFIER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_SESSION_VERIFIER_H_

#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/speculation/verify_mailbox.h"
#include "services/orchestrator/core/verifiers/verifier.h"

namespace foretoken::orchestrator {

class SessionVerifier final : public Verifier {
 public:
  // `sessions` must outlive the object.
  explicit SessionVerifier(VerifySessions& sessions) : sessions_(sessions) {}

  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override {
    request.tokens.assign(text.begin(), text.end());
    mailbox_ = std::make_shared<VerifyMailbox>();
    FORETOKEN_ASSIGN_OR_RETURN(session_,
                               sessions_.Open(std::move(request), mailbox_));
    return mailbox_->CollectPrefill(absl::InfiniteFuture());
  }
  absl::StatusOr<RoundResult> Round(RoundRequest request,
                                    absl::Span<const TokenId>) override {
    if (session_ == nullptr) {
      return absl::FailedPreconditionError("no session is open");
    }
    FORETOKEN_RETURN_IF_ERROR(session_->Ask(std::move(request)));
    return mailbox_->CollectRound(absl::InfiniteFuture());
  }
  void Close() override { session_.reset(); }

 private:
  VerifySessions& sessions_;
  std::shared_ptr<VerifyMailbox> mailbox_;
  std::unique_ptr<VerifySession> session_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_SESSION_VERIFIER_H_
