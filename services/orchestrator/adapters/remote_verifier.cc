#include "services/orchestrator/adapters/remote_verifier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"

namespace foretoken::orchestrator {
namespace {

// The verifier, not the request, is what failed.
bool IsLost(const absl::Status& status) {
  // A cancel that was not ours is a server that shut down; Internal and Unknown
  // are what a connection that dies inside a message gives.
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsInternal(status) || absl::IsUnknown(status);
}

absl::Status Protocol(const char* wanted) {
  return absl::UnavailableError(
      absl::StrCat("the verifier answered out of turn, want ", wanted));
}

}  // namespace

RemoteVerifier::RemoteVerifier(const RemoteVerifierOptions& options,
                               VerifierPool& pool)
    : options_(options), pool_(pool) {}

RemoteVerifier::~RemoteVerifier() { Close(); }

void RemoteVerifier::Close() {
  if (call_ != nullptr) call_->Finish();
  DropCall();
}

void RemoteVerifier::DropCall() {
  call_.reset();
  lease_.reset();
  absl::MutexLock lock(&mu_);
  cancellable_.reset();
}

void RemoteVerifier::Cancel() {
  std::shared_ptr<VerifyStream> call;
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    call = cancellable_;
  }
  if (call != nullptr) call->Cancel();
}

bool RemoteVerifier::Adopt(std::shared_ptr<VerifyStream> call) {
  call_ = std::move(call);
  absl::MutexLock lock(&mu_);
  cancellable_ = call_;
  return !cancelled_;
}

absl::Status RemoteVerifier::BackOff(absl::Duration delay) {
  absl::MutexLock lock(&mu_);
  if (mu_.AwaitWithTimeout(absl::Condition(&cancelled_), delay)) {
    return absl::CancelledError("the request was cancelled");
  }
  return absl::OkStatus();
}

absl::StatusOr<PrefillResult> RemoteVerifier::OpenOn(
    VerifierPool::Lease lease) {
  lease_.emplace(std::move(lease));
  if (!Adopt(lease_->Connect(session_.deadline))) {
    call_->Cancel();
    call_->Finish();
    return absl::CancelledError("the request was cancelled");
  }
  v1::VerifyRequest request;
  v1::OpenSession& open = *request.mutable_open();
  rpc::ToProto(session_, &open);
  call_->Send(std::move(request));

  FORETOKEN_ASSIGN_OR_RETURN(v1::VerifyResponse opened, call_->Receive());
  if (!opened.has_opened()) return Protocol("opened");
  FORETOKEN_ASSIGN_OR_RETURN(v1::VerifyResponse prefilled, call_->Receive());
  if (!prefilled.has_prefilled()) return Protocol("prefilled");
  FORETOKEN_ASSIGN_OR_RETURN(PrefillResult result,
                             rpc::FromProto(prefilled.prefilled()));
  session_.numerics_fingerprint = opened.opened().numerics_fingerprint();
  return result;
}

absl::StatusOr<PrefillResult> RemoteVerifier::OpenAnywhere() {
  const bool fresh = session_.numerics_fingerprint.empty();
  const absl::Time give_up = std::min(
      session_.deadline, absl::Now() + (fresh ? options_.connect_timeout
                                              : options_.failover_timeout));
  absl::Duration backoff = options_.first_backoff;
  std::set<int> unequal;  // verifiers with another fingerprint
  absl::Status aborted;   // what they said
  while (true) {
    std::set<int> asked = unequal;
    absl::Status full;  // somebody would, later
    absl::Status last = absl::UnavailableError("there is no verifier");
    while (std::optional<VerifierPool::Lease> lease = pool_.Acquire(asked)) {
      const int index = lease->index();
      asked.insert(index);
      absl::StatusOr<PrefillResult> result = OpenOn(*std::move(lease));
      if (result.ok()) return result;
      last = result.status();
      // A cancel of ours tells nothing of the verifier.
      const absl::Status ours = BackOff(absl::ZeroDuration());
      if (ours.ok() && IsLost(last)) lease_->ReportDown();
      Close();
      FORETOKEN_RETURN_IF_ERROR(ours);
      if (absl::IsAborted(last)) {
        unequal.insert(index);
        aborted = last;
      } else if (absl::IsResourceExhausted(last)) {
        full = last;
      } else if (!IsLost(last)) {
        return last;
      }
    }
    // Everyone was asked. A new request that found all full is the client's to
    // repeat; one that has output already waits for room.
    if (static_cast<int>(unequal.size()) == pool_.size()) return aborted;
    if (fresh && !full.ok()) return full;
    const absl::Duration hint =
        rpc::RetryAfter(full).value_or(absl::ZeroDuration());
    const absl::Duration delay =
        std::min(std::max(backoff, hint), options_.max_backoff);
    if (absl::Now() + delay >= give_up) {
      if (give_up == session_.deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("no verifier in time: ", last.message()));
      }
      return aborted.ok() ? last : aborted;
    }
    FORETOKEN_RETURN_IF_ERROR(BackOff(delay));
    backoff = std::min(backoff * 2, options_.max_backoff);
  }
}

absl::StatusOr<PrefillResult> RemoteVerifier::Open(SessionRequest request) {
  session_ = std::move(request);
  FORETOKEN_ASSIGN_OR_RETURN(PrefillResult result, OpenAnywhere());
  for (const SampledToken& token : result.tokens) {
    session_.tokens.push_back(token.token);
  }
  return result;
}

absl::StatusOr<RoundResult> RemoteVerifier::RoundOnce(
    const RoundRequest& request) {
  v1::VerifyRequest message;
  rpc::ToProto(request, message.mutable_round());
  call_->Send(std::move(message));
  FORETOKEN_ASSIGN_OR_RETURN(v1::VerifyResponse response, call_->Receive());
  if (!response.has_result()) return Protocol("a round's result");
  FORETOKEN_ASSIGN_OR_RETURN(
      RoundResult result,
      rpc::FromProto(response.result(), request.tree.size()));
  if (result.length !=
      request.length + static_cast<int64_t>(result.tokens.size())) {
    return Protocol("the next committed length");
  }
  return result;
}

absl::StatusOr<RoundResult> RemoteVerifier::Round(RoundRequest request) {
  if (call_ == nullptr) {
    return absl::FailedPreconditionError("no session is open");
  }
  while (true) {
    absl::StatusOr<RoundResult> result = RoundOnce(request);
    if (result.ok()) {
      for (const SampledToken& token : result->tokens) {
        session_.tokens.push_back(token.token);
      }
      return result;
    }
    // Cancelled by us, or the request's own fault?
    FORETOKEN_RETURN_IF_ERROR(BackOff(absl::ZeroDuration()));
    if (!IsLost(result.status())) return result.status();
    FORETOKEN_LOG(kWarning, "request ", session_.request_id, ": verifier ",
                  lease_->name(),
                  " lost, replaying: ", result.status().message());
    lease_->ReportDown();
    Close();
    ++failovers_;
    FORETOKEN_ASSIGN_OR_RETURN(const PrefillResult replayed, OpenAnywhere());
    if (replayed.length != request.length || !replayed.tokens.empty()) {
      return absl::InternalError(absl::StrCat("a replay ended at ",
                                              replayed.length, " tokens, want ",
                                              request.length));
    }
  }
}

}  // namespace foretoken::orchestrator
