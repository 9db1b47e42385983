// RequestCall: one request of GenerationService between its arrival and its
// end: what its caller resumes or cancels, what it is charged, and the listener
// that it tells.
//
// Thread-safe, but for what is marked as the worker's: the thread that admits,
// runs or refuses the request.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REQUEST_CALL_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REQUEST_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/byte_budget.h"
#include "common/base/request_pool.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"
#include "services/orchestrator/core/admission/refusals.h"
#include "services/orchestrator/core/round/request_spans.h"
#include "services/orchestrator/core/verifiers/verifier.h"

namespace foretoken::orchestrator {

// Counts the requests and tokens of an account. Thread-safe.
class CallerAccount {
 public:
  virtual ~CallerAccount() = default;
  virtual void OnPromptTokens(int64_t /*count*/) {}
  virtual void OnGeneratedTokens(int64_t /*count*/) {}
  // A request has ended, refused ones included.
  virtual void OnEnd(absl::StatusCode) {}
};

class RequestCall final : public GenerationCall {
 public:
  // `memory` is held until the call is destroyed. `account` must outlive it.
  RequestCall(Caller caller, absl::Time arrived, CallerAccount& account,
              ByteBudget::Share memory,
              std::shared_ptr<GenerationListener> listener);

  void Resume() override ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() override { End(absl::OkStatus()); }
  // Cancels the request; it ends with `reason` unless that is OK.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

  // Where End finds the request: in the pool's queue, later at its verifier
  // (null: nowhere any more), or among the refusals.
  void SetWaiting(RequestPool& pool, RequestPool::Ticket ticket)
      ABSL_LOCKS_EXCLUDED(mu_);
  void SetVerifier(Verifier* verifier) ABSL_LOCKS_EXCLUDED(mu_);
  void SetRefused(Refusals& refusals, Refusals::Ticket ticket)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The status to report for a request that ended with `status`.
  absl::Status Reason(const absl::Status& status, absl::Time now) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Tell the listener. Deliver blocks while it wants no more, and returns
  // Cancelled once the call is cancelled. The worker's.
  absl::Status Deliver(const GenerationDelta& delta) ABSL_LOCKS_EXCLUDED(mu_);
  void DeliverResult(const GenerationSummary& summary);
  void DeliverEnd(const absl::Status& status);

  const Caller caller;
  const absl::Time arrived;
  CallerAccount& account;

  // The worker's.
  std::string id;
  absl::Time deadline = absl::InfiniteFuture();
  std::unique_ptr<RequestSpans> trace;  // null: none
  ByteBudget::Share memory;
  int64_t charged_tokens = 0;  // to the caller's quota
  int64_t used_tokens = 0;
  // There was no room for its text or constraint: nothing was encoded or
  // compiled.
  bool no_room = false;

 private:
  std::shared_ptr<GenerationListener>
      listener_;  // the worker's; null after OnEnd

  mutable absl::Mutex mu_;
  RequestPool* pool_ ABSL_GUARDED_BY(mu_) = nullptr;
  RequestPool::Ticket ticket_ ABSL_GUARDED_BY(mu_) = RequestPool::kNotWaiting;
  Verifier* verifier_ ABSL_GUARDED_BY(mu_) = nullptr;
  Refusals* refusals_ ABSL_GUARDED_BY(mu_) = nullptr;
  Refusals::Ticket refusal_ ABSL_GUARDED_BY(mu_);
  bool resumed_ ABSL_GUARDED_BY(mu_) = false;  // since the last delta
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REQUEST_CALL_H_
