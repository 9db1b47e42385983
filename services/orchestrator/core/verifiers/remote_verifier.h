// RemoteVerifier: the orchestrator's Verifier on a pool of verifiers. It
// survives the loss of the verifier that it runs on.
//
// A session whose verifier is lost (killed, drained, unreachable) is replayed,
// prompt and output, on a verifier with the same numerics fingerprint, where it
// continues with exactly the tokens that it would have had. If only verifiers
// with another fingerprint are left, or the pool has elected another and none
// of its own is up, it ends with ABORTED, or with UNAVAILABLE before its first
// token; with ABORTED, too, if two verifiers were lost over it without a token
// between (UNAVAILABLE if the second left it waiting). A session with a
// constraint goes only to verifiers of this process's grammar version:
// FAILED_PRECONDITION, or ABORTED once it has output, if there is none.
// Attempts back off, and stop at the request's deadline and at failover_timeout
// without progress.
//
// Owned by one thread; Cancel may come from any.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_REMOTE_VERIFIER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_REMOTE_VERIFIER_H_

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/speculation/verify_mailbox.h"
#include "services/orchestrator/core/verifiers/verifier.h"
#include "services/orchestrator/core/verifiers/verifier_pool.h"

namespace foretoken::orchestrator {

struct RemoteVerifierOptions {
  absl::Duration failover_timeout = absl::Seconds(60);
  // For a request that no verifier has opened yet.
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration first_backoff = absl::Milliseconds(20);
  absl::Duration max_backoff = absl::Milliseconds(500);
};

class RemoteVerifier final : public Verifier {
 public:
  // `pool` must outlive the object.
  RemoteVerifier(const RemoteVerifierOptions& options, VerifierPool& pool,
                 Clock clock = MonotonicClock());
  ~RemoteVerifier() override;

  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override;
  absl::StatusOr<RoundResult> Round(RoundRequest request,
                                    absl::Span<const TokenId> text) override;
  void Close() override;
  void Cancel() override;
  int64_t failovers() const override { return failovers_; }

 private:
  // One attempt on one verifier, prefill included.
  absl::StatusOr<PrefillResult> OpenOn(VerifierPool::Lease lease,
                                       absl::Span<const TokenId> text);
  // Tries verifiers until one succeeds, an error is final, or time runs out.
  absl::StatusOr<PrefillResult> OpenAnywhere(absl::Span<const TokenId> text);
  absl::StatusOr<RoundResult> RoundOnce(const RoundRequest& request);
  // Records that the verifier `id` was lost, by `loss`, while this request,
  // with `length` tokens, was in its engine. Aborted if that is the second in a
  // row without a token between: the request may be what kills or hangs them;
  // `loss` if one verifier was left twice. A verifier that stops in good order
  // does not count.
  absl::Status NoteLoss(const absl::Status& loss, int id, int64_t length);
  // Sleeps; returns Cancelled if cancelled first.
  absl::Status BackOff(absl::Duration delay);
  // Makes a mailbox that Cancel can fail; Cancelled if already cancelled.
  absl::Status NewMailbox();

  const RemoteVerifierOptions options_;
  VerifierPool& pool_;
  const Clock clock_;
  // Holds the fingerprint of the first verifier, but no tokens.
  SessionRequest session_;
  bool opened_ = false;     // on some verifier: it may have output
  bool in_engine_ = false;  // the current verifier has opened the session
  std::optional<VerifierPool::Lease> lease_;
  std::shared_ptr<VerifyMailbox> mailbox_;
  std::unique_ptr<VerifySession> verify_;  // destroyed before the lease
  int64_t failovers_ = 0;
  int64_t length_at_loss_ = -1;
  int lost_ = -1;  // the last verifier that was

  absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<VerifyMailbox> cancellable_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_REMOTE_VERIFIER_H_
