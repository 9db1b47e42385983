// BidiCall: client side of a bidirectional stream over gRPC's callback API, one
// read and one write outstanding.
//
//   Start -> Send* -> Finish
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_BIDI_CALL_H_
#define FORETOKEN_COMMON_RPC_BIDI_CALL_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/live_calls.h"
#include "common/rpc/status.h"
#include "grpcpp/support/client_callback.h"

namespace foretoken::rpc {

// Receives a stream's messages. Called by one thread at a time; must not block.
template <typename Response>
class BidiReader {
 public:
  virtual ~BidiReader() = default;
  // Returns false to cancel the stream.
  virtual bool OnMessage(Response& message) = 0;
  // Last call: the stream has ended with this status.
  virtual void OnEnd(const absl::Status& status) = 0;
};

template <typename Request, typename Response>
class BidiCall final : public LiveCall,
                       public grpc::ClientBidiReactor<Request, Response> {
 public:
  using Reactor = grpc::ClientBidiReactor<Request, Response>;
  using Reader = BidiReader<Response>;
  // A stub's method: `stub.async()->Verify(context, reactor)`.
  using Method = std::function<void(grpc::ClientContext*, Reactor*)>;

  // Starts the stream; gRPC keeps the call alive until it is done.
  // `peer` must outlive the call.
  static std::shared_ptr<BidiCall> Start(const Method& method,
                                         absl::Time deadline, Peer& peer,
                                         std::unique_ptr<Reader> reader) {
    std::shared_ptr<BidiCall> call(
        new BidiCall(peer.calls, deadline, std::move(reader)));
    call->self_ = call;
    PrepareCall(call->context_, deadline, peer.endpoint.token.Get());
    method(&call->context_, call.get());
    // Writes start outside reactions; the hold delays OnDone until RemoveHold.
    call->AddHold();
    call->StartRead(&call->response_);
    call->StartCall();
    return call;
  }
  ~BidiCall() override { Forget(); }

  // Queues the message; ignored once the stream is finishing or broken.
  void Send(Request message) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (finishing_) return;
    unsent_.push_back(std::move(message));
    WriteNext();
  }

  // Half-closes the stream after the queued messages; the service then ends it.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    finishing_ = true;
    WriteNext();
  }

  // Ends the stream now.
  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      if (!reader_->OnMessage(response_)) Cancel();
      this->StartRead(&response_);
      return;
    }
    absl::MutexLock lock(&mu_);
    Break();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) Break();
    WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    // The caller may already have dropped its reference.
    const std::shared_ptr<BidiCall> last = std::move(self_);
    reader_->OnEnd(
        StatusOfCall(status, cancelled_, deadline_ - MonotonicNow()));
    SetDone();
  }

 private:
  BidiCall(LiveCalls& calls, absl::Time deadline,
           std::unique_ptr<Reader> reader)
      : LiveCall(calls), deadline_(deadline), reader_(std::move(reader)) {}

  // The stream is broken: drops queued messages and the hold, so that OnDone
  // delivers the status.
  void Break() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    broken_ = finishing_ = true;
    unsent_.clear();
    WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || !hold_) return;
    if (!unsent_.empty()) {
      request_ = std::move(unsent_.front());
      unsent_.pop_front();
      writing_ = true;
      this->StartWrite(&request_);
    } else if (finishing_) {
      hold_ = false;
      if (!broken_) this->StartWritesDone();
      this->RemoveHold();
    }
  }

  const absl::Time deadline_;
  const std::unique_ptr<Reader> reader_;
  std::atomic<bool> cancelled_{false};
  grpc::ClientContext context_;
  Request request_;    // being written
  Response response_;  // being read

  absl::Mutex mu_;
  std::deque<Request> unsent_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;  // then RemoveHold
  bool hold_ ABSL_GUARDED_BY(mu_) = true;
  std::shared_ptr<BidiCall> self_;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_BIDI_CALL_H_
