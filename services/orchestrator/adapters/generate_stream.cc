#include "services/orchestrator/adapters/generate_stream.h"

#include <utility>

#include "common/rpc/status.h"

namespace foretoken::orchestrator {

std::shared_ptr<GenerateStream> GenerateStream::Create() {
  std::shared_ptr<GenerateStream> stream(new GenerateStream());
  stream->self_ = stream;
  return stream;
}

absl::Status GenerateStream::Send(v1::GenerateResponse message) {
  absl::MutexLock lock(&mu_);
  const auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return cancelled_ || unsent_.size() < kMaxUnsent;
  };
  mu_.Await(absl::Condition(&room));
  if (cancelled_) return absl::CancelledError("the client is gone");
  unsent_.push_back(std::move(message));
  WriteNext();
  return absl::OkStatus();
}

void GenerateStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  ending_ = true;
  status_ = status;
  WriteNext();
}

void GenerateStream::WriteNext() {
  if (writing_ || finished_) return;
  if (!unsent_.empty() && !cancelled_) {
    response_ = std::move(unsent_.front());
    unsent_.pop_front();
    writing_ = true;
    StartWrite(&response_);
  } else if (ending_) {
    finished_ = true;
    Finish(rpc::ToGrpcStatus(status_));
  }
}

void GenerateStream::SetCancelAction(std::function<void()> action) {
  absl::MutexLock acting(&action_mu_);
  action_ = std::move(action);
  if (action_ && cancelled()) std::exchange(action_, nullptr)();
}

bool GenerateStream::cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

void GenerateStream::NoteCancelled() {
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
  }
  absl::MutexLock acting(&action_mu_);
  if (action_) std::exchange(action_, nullptr)();
}

void GenerateStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
  }
  if (!ok) NoteCancelled();
  absl::MutexLock lock(&mu_);
  WriteNext();
}

void GenerateStream::OnCancel() { NoteCancelled(); }

void GenerateStream::OnDone() {
  const std::shared_ptr<GenerateStream> last = std::move(self_);
}

}  // namespace foretoken::orchestrator
