#include "common/rpc/stream_server.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/base/timed_wait.h"
#include "common/rpc/channel.h"

namespace foretoken::rpc {
namespace {

// Checks per stall_timeout: a stall is noticed at most a quarter of it late.
constexpr int kChecksPerStall = 4;

}  // namespace

StreamServer::~StreamServer() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  watcher_.join();
}

void StreamServer::WatchStalls() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(mu_, absl::Condition(&stop_),
                   options_.stall_timeout / kChecksPerStall)) {
        return;
      }
    }
    // On a copy and without mu_: CheckStall takes the stream's lock, which
    // comes before mu_.
    for (const auto& stream : Streams()) stream->CheckStall();
  }
}

absl::Status StreamServer::CheckNotDraining() const {
  absl::MutexLock lock(&mu_);
  return DrainStatus();
}

absl::Status StreamServer::DrainStatus() const {
  if (!draining_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(service_, " is draining"));
}

absl::Status StreamServer::WithRetryHint(const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status) || RetryAfter(status).has_value()) {
    return status;
  }
  return WithRetryAfter(status, options_.retry_after);
}

absl::Status StreamServer::Admit() {
  absl::MutexLock lock(&mu_);
  return AdmitOne();
}

// All admissions pass here, those of streams and those of callers in this
// process, so that one limit counts both.
absl::Status StreamServer::AdmitOne() {
  FORETOKEN_RETURN_IF_ERROR(DrainStatus());
  if (open_ >= options_.max_streams) {
    return WithRetryHint(absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.max_streams, " streams are in use")));
  }
  Count(1);
  return absl::OkStatus();
}

void StreamServer::Release() {
  absl::MutexLock lock(&mu_);
  Count(-1);
}

void StreamServer::Count(int change) {
  open_ += change;
  if (observer_ != nullptr) observer_->OnStreams(open_);
}

// Under one lock: a drain that begins meanwhile either refuses the stream or
// finds it, and tells it.
absl::Status StreamServer::Enter(const std::shared_ptr<ServerStream>& stream) {
  absl::MutexLock lock(&mu_);
  FORETOKEN_RETURN_IF_ERROR(AdmitOne());
  streams_.insert(stream);
  return absl::OkStatus();
}

void StreamServer::Leave(const std::shared_ptr<ServerStream>& stream) {
  absl::MutexLock lock(&mu_);
  streams_.erase(stream);
  Count(-1);
}

std::vector<std::shared_ptr<ServerStream>> StreamServer::Streams() const {
  absl::MutexLock lock(&mu_);
  return {streams_.begin(), streams_.end()};
}

void StreamServer::BeginDrain() {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  for (const auto& stream : Streams()) stream->Drain();
}

bool StreamServer::Idle() const {
  absl::MutexLock lock(&mu_);
  return open_ == 0;
}

void StreamServer::EndAll() {
  const absl::Status status = StoppingError(service_);
  for (const auto& stream : Streams()) stream->Abort(status);
}

void ServerStream::Begin(grpc::CallbackServerContext& context) {
  absl::MutexLock lock(&mu_);
  context_ = &context;
  self_ = shared_from_this();
  deadline_ = DeadlineOf(context.raw_deadline());
  // A stream without a read side has its request already.
  half_closed_ = !reads();
  const absl::Status admitted = server_.Enter(self_);
  admitted_ = admitted.ok();
  if (!admitted_) {
    End(admitted);
    return;
  }
  if (!half_closed_) {
    // The alarm holds a weak reference: a stream that ended before must not
    // live until the alarm expires.
    silence_.Set(GrpcTime(MonotonicNow() + server_.options_.first_message_time),
                 [weak = weak_from_this()](bool expired) {
                   const std::shared_ptr<ServerStream> stream = weak.lock();
                   if (expired && stream != nullptr) stream->OnSilence();
                 });
  }
  OnStart();
  Continue();
}

void ServerStream::Abort(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  // The server stops now: end at once, even if the finish is being held back.
  held_ = lingers_ = false;
  End(status);
  Continue();
}

void ServerStream::Drain() {
  absl::MutexLock lock(&mu_);
  if (!ended_) OnDrain();
}

void ServerStream::OnSilence() {
  absl::MutexLock lock(&mu_);
  // The alarm may have expired while the first message was on its way.
  if (spoken_) return;
  End(absl::DeadlineExceededError(
      absl::StrCat("no message within ",
                   absl::FormatDuration(server_.options_.first_message_time),
                   " of the call")));
}

void ServerStream::CheckStall() {
  absl::MutexLock lock(&mu_);
  // Progress is a write that has completed since the last check, or no write
  // outstanding. kChecksPerStall checks in a row without any make a stall.
  const bool progress =
      !writing_ || std::exchange(written_before_, written_) != written_;
  stalled_ = progress ? 0 : stalled_ + 1;
  if (stalled_ < kChecksPerStall) return;
  // Fails the pending write, which ends the call. This comes first: End may
  // release the lock, and only the pending write keeps the context alive.
  context_->TryCancel();
  DropUnsent();
  End(absl::CancelledError(
      absl::StrCat("the client took no message for ",
                   absl::FormatDuration(server_.options_.stall_timeout))));
}

void ServerStream::ReadDone(bool ok) {
  if (!std::exchange(spoken_, true)) silence_.Cancel();
  if (ok) return;
  half_closed_ = true;
  if (!ended_) OnHalfClose();
}

void ServerStream::Linger() {
  if (lingers_ && written_ > 0 && final_.ok() &&
      !server_.CheckNotDraining().ok()) {
    Hold(server_.options_.linger);
  }
}

void ServerStream::Hold(absl::Duration time) {
  // Half of the time left at most: the status must still arrive before the
  // call's deadline. hold_ is made once, so a stream lingers once.
  time = std::min(time, (deadline_ - MonotonicNow()) / 2);
  if (time <= absl::ZeroDuration() || hold_ != nullptr) return;
  held_ = true;
  hold_ = std::make_unique<grpc::Alarm>();
  hold_->Set(GrpcTime(MonotonicNow() + time), [weak = weak_from_this()](bool) {
    const std::shared_ptr<ServerStream> stream = weak.lock();
    if (stream != nullptr) stream->EndHold();
  });
}

void ServerStream::EndHold() {
  absl::MutexLock lock(&mu_);
  held_ = false;
  Continue();
}

// Nothing that is queued can arrive any more, so the finish need not wait.
void ServerStream::ClientGone() {
  held_ = lingers_ = false;
  DropUnsent();
  End(absl::CancelledError("the client is gone"));
  Continue();
}

void ServerStream::Done() {
  if (admitted_) server_.Leave(self_);
  // May destroy the object.
  const std::shared_ptr<ServerStream> last = std::move(self_);
}

void ServerStream::End(const absl::Status& status) {
  if (!ended_ && !status.ok()) DropUnsent();
  EndAfterSends(status);
}

void ServerStream::EndAfterSends(const absl::Status& status) {
  EndWith(status, /*counted=*/false);
}

void ServerStream::EndCounted(const absl::Status& status) {
  if (!ended_ && !status.ok()) DropUnsent();
  EndWith(status, /*counted=*/true);
}

void ServerStream::EndWith(const absl::Status& status, bool counted) {
  if (ended_) return;
  ended_ = true;
  final_ = status;
  if (!status.ok()) {
    if (server_.observer_ != nullptr && !counted) {
      server_.observer_->OnFailed(status.code());
    }
    // Cancels, deadlines and refusals are normal: count, do not log.
    const bool normal = absl::IsCancelled(status) ||
                        absl::IsDeadlineExceeded(status) ||
                        absl::IsResourceExhausted(status);
    const std::string name = normal ? std::string() : LogName(status);
    if (!name.empty()) {
      FORETOKEN_LOG(kWarning, server_.service_, ": ", name,
                    " ended: ", status.ToString());
    }
  }
  if (admitted_) OnClosed(status);
  Continue();
}

void ServerStream::Continue() {
  if (finished_) return;
  if (!writing_ && unsent() > 0) {
    writing_ = true;
    StartNextWrite();
  }
  if (!ended_) {
    if (reading_ || half_closed_ || !CanRead()) return;
    reading_ = true;
    StartNextRead();
  } else if (!writing_ && !held_ && CanFinish()) {
    Linger();
    if (held_) return;
    finished_ = true;
    FinishCall();
  }
}

}  // namespace foretoken::rpc
