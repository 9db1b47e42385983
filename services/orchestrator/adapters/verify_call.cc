#include "services/orchestrator/adapters/verify_call.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace foretoken::orchestrator {

std::shared_ptr<VerifyCall> VerifyCall::Start(v1::Verifier::Stub& stub,
                                              absl::Time deadline,
                                              const std::string& token) {
  std::shared_ptr<VerifyCall> call(new VerifyCall());
  call->self_ = call;
  rpc::PrepareCall(call->context_, deadline, token);
  stub.async()->Verify(&call->context_, call.get());
  // Writes are started outside reactions: the hold keeps OnDone away.
  call->AddHold();
  call->StartRead(&call->response_);
  call->StartCall();
  return call;
}

void VerifyCall::Send(v1::VerifyRequest message) {
  absl::MutexLock lock(&mu_);
  if (broken_ || done_ || finishing_) return;
  unsent_.push_back(std::move(message));
  WriteNext();
}

void VerifyCall::WriteNext() {
  if (writing_ || !hold_) return;
  if (!broken_ && !unsent_.empty()) {
    request_ = std::move(unsent_.front());
    unsent_.pop_front();
    writing_ = true;
    StartWrite(&request_);
  } else if (finishing_) {
    hold_ = false;
    if (!broken_) StartWritesDone();
    RemoveHold();
  }
}

absl::StatusOr<v1::VerifyResponse> VerifyCall::Receive() {
  absl::MutexLock lock(&mu_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !received_.empty() || done_ || broken_ || cancelled_;
  };
  mu_.Await(absl::Condition(&ready));
  if (cancelled_) return absl::CancelledError("the request was cancelled");
  if (!received_.empty()) {
    v1::VerifyResponse message = std::move(received_.front());
    received_.pop_front();
    return message;
  }
  if (!done_) {
    // The stream broke and its status is on its way, once nothing holds it.
    finishing_ = true;
    WriteNext();
    mu_.Await(absl::Condition(&done_));
  }
  if (!status_.ok()) return status_;
  return absl::UnavailableError("the verifier ended the session early");
}

void VerifyCall::Finish() {
  absl::MutexLock lock(&mu_);
  finishing_ = true;
  WriteNext();
}

void VerifyCall::Cancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  if (done_) return;
  context_.TryCancel();
}

void VerifyCall::OnReadDone(bool ok) {
  absl::MutexLock lock(&mu_);
  if (!ok) {
    broken_ = true;  // whether it ended well or not, nothing more comes
    return;
  }
  received_.push_back(std::move(response_));
  StartRead(&response_);
}

void VerifyCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  writing_ = false;
  if (!ok) broken_ = true;
  WriteNext();
}

void VerifyCall::OnDone(const grpc::Status& status) {
  // Outlives the lock: the caller may have let go already.
  const std::shared_ptr<VerifyCall> last = std::move(self_);
  absl::MutexLock lock(&mu_);
  done_ = true;
  status_ = rpc::FromGrpcStatus(status);
}

}  // namespace foretoken::orchestrator
