#include "services/local/direct_verify_stream.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace foretoken::local {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

DirectVerifyStream::DirectVerifyStream(verifier::VerifierServer& server,
                                       absl::Time deadline)
    : server_(server),
      deadline_(deadline),
      admitted_(server.AdmitStream()),
      protocol_(server.sessions(), server.retry_after(), *this) {
  if (!admitted_.ok()) answers_.End(admitted_);
}

std::shared_ptr<DirectVerifyStream> DirectVerifyStream::Start(
    verifier::VerifierServer& server, absl::Time deadline) {
  return std::shared_ptr<DirectVerifyStream>(
      new DirectVerifyStream(server, deadline));
}

void DirectVerifyStream::Send(v1::VerifyRequest message) {
  if (!admitted_.ok()) return;
  const std::shared_ptr<VerifyListener> sink = shared_from_this();
  absl::MutexLock lock(&mu_);
  protocol_.OnMessage(message, deadline_, sink);
}

std::optional<absl::StatusOr<VerifyStream::Received>>
DirectVerifyStream::Receive(absl::Time deadline) {
  // The engine looks at deadlines between its passes; nobody waits for a pass
  // that hangs.
  const absl::Time end = deadline_ + kGrace;
  auto received = answers_.Pop(std::min(deadline, end));
  if (received.has_value() || deadline < end) return received;
  absl::MutexLock lock(&mu_);
  protocol_.OnDisconnect();
  return absl::DeadlineExceededError("the request's deadline has passed");
}

void DirectVerifyStream::Finish() {
  if (!admitted_.ok()) return;
  absl::MutexLock lock(&mu_);
  protocol_.OnHalfClose();
}

void DirectVerifyStream::Cancel() {
  if (!admitted_.ok()) return;
  absl::MutexLock lock(&mu_);
  answers_.End(absl::CancelledError("the request was cancelled"));
  protocol_.OnDisconnect();
}

void DirectVerifyStream::OnOpened(const std::string& numerics_fingerprint) {
  absl::MutexLock lock(&mu_);
  protocol_.OnOpened(numerics_fingerprint);
}

void DirectVerifyStream::OnPrefilled(PrefillResult result) {
  absl::MutexLock lock(&mu_);
  protocol_.OnPrefilled(result);
}

void DirectVerifyStream::OnRound(RoundResult result) {
  absl::MutexLock lock(&mu_);
  protocol_.OnRound(result);
}

void DirectVerifyStream::OnFailed(absl::Status status) {
  absl::MutexLock lock(&mu_);
  protocol_.OnFailed(status);
}

void DirectVerifyStream::Send(v1::VerifyResponse message) {
  answers_.Push({std::move(message), absl::Now()});
}

void DirectVerifyStream::End(const absl::Status& status) {
  if (!status.ok()) server_.StreamFailed(status.code());
  server_.StreamDone();
  answers_.End(status);
}

}  // namespace foretoken::local
