#include "services/orchestrator/core/admission/request_call.h"

#include <utility>

namespace foretoken::orchestrator {
namespace {

absl::Status WasCancelled() {
  return absl::CancelledError("the request was cancelled");
}

}  // namespace

RequestCall::RequestCall(Caller from, absl::Time at, CallerAccount& charged,
                         ByteBudget::Share held,
                         std::shared_ptr<GenerationListener> listener)
    : caller(std::move(from)),
      arrived(at),
      account(charged),
      memory(std::move(held)),
      listener_(std::move(listener)) {}

void RequestCall::Resume() {
  absl::MutexLock lock(&mu_);
  resumed_ = true;
}

// Neither pool, verifier nor refusals tell the listener from inside these
// calls, so they may be made under the lock.
void RequestCall::End(const absl::Status& reason) {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  // The first reason counts: a drain that ends a cancelled request must not
  // rename its end.
  if (reason_.ok()) reason_ = reason;
  if (verifier_ != nullptr) verifier_->Cancel();
  if (pool_ != nullptr) pool_->Remove(ticket_, WasCancelled());
  if (refusals_ != nullptr) refusals_->Hurry(refusal_);
}

void RequestCall::SetWaiting(RequestPool& pool, RequestPool::Ticket ticket) {
  absl::MutexLock lock(&mu_);
  pool_ = &pool;
  ticket_ = ticket;
  // The request was cancelled between Submit and here, when there was no ticket
  // to remove.
  if (cancelled_) pool.Remove(ticket, WasCancelled());
}

void RequestCall::SetVerifier(Verifier* verifier) {
  absl::MutexLock lock(&mu_);
  verifier_ = verifier;
  if (verifier != nullptr && cancelled_) verifier->Cancel();
}

void RequestCall::SetRefused(Refusals& refusals, Refusals::Ticket ticket) {
  absl::MutexLock lock(&mu_);
  refusals_ = &refusals;
  refusal_ = ticket;
  if (cancelled_) refusals.Hurry(ticket);
}

bool RequestCall::cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

absl::Status RequestCall::Reason(const absl::Status& status,
                                 absl::Time now) const {
  absl::MutexLock lock(&mu_);
  if (status.ok()) return status;
  if (!reason_.ok()) return reason_;
  // A transport cancels at the deadline, too.
  if (now < deadline) return status;
  return absl::DeadlineExceededError("the request's deadline has passed");
}

absl::Status RequestCall::Deliver(const GenerationDelta& delta) {
  account.OnGeneratedTokens(static_cast<int64_t>(delta.token_ids.size()));
  {
    // A listener may be resumed before it has returned.
    absl::MutexLock lock(&mu_);
    // Before OnDelta: a Resume that comes during it counts for this delta.
    resumed_ = false;
  }
  const bool more = listener_->OnDelta(delta);
  absl::MutexLock lock(&mu_);
  const auto may_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return resumed_ || cancelled_;
  };
  if (!more) mu_.Await(absl::Condition(&may_go_on));
  return cancelled_ ? WasCancelled() : absl::OkStatus();
}

void RequestCall::DeliverResult(const GenerationSummary& summary) {
  account.OnPromptTokens(summary.prompt_tokens);
  listener_->OnResult(summary);
}

void RequestCall::DeliverEnd(const absl::Status& status) {
  // exchange: nothing may be told after the end, and the listener may hold what
  // this call is part of.
  std::exchange(listener_, nullptr)->OnEnd(status);
}

}  // namespace foretoken::orchestrator
