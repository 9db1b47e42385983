// BidiCall: a MessageStream over gRPC's callback API: one read and one write
// outstanding.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_BIDI_CALL_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_BIDI_CALL_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "grpcpp/support/client_callback.h"
#include "services/orchestrator/adapters/message_stream.h"

namespace foretoken::orchestrator {

// The calls of one channel that are not quite gone. gRPC must not lose the last
// reference to a channel in one of its own callbacks, so whoever owns a channel
// owns one of these, too, and lets go of it first. Thread-safe.
class LiveCalls {
 public:
  // Cancels what there still is and waits for its end.
  ~LiveCalls() {
    absl::MutexLock lock(&mu_);
    for (AnyCall* call : calls_) call->Cancel();
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return count_ == 0;
    };
    mu_.Await(absl::Condition(&none));
  }

  void Enter(AnyCall* call) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    calls_.insert(call);
    ++count_;
  }
  // It is being destroyed: not to be cancelled any more.
  void Forget(AnyCall* call) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    calls_.erase(call);
  }
  // It holds nothing of the channel any more.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    --count_;
  }

 private:
  absl::Mutex mu_;
  std::set<AnyCall*> calls_ ABSL_GUARDED_BY(mu_);
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

template <typename Request, typename Response>
class BidiCall final : public grpc::ClientBidiReactor<Request, Response>,
                       public MessageStream<Request, Response> {
 public:
  using Reactor = grpc::ClientBidiReactor<Request, Response>;
  // A stub's method: `stub.async()->Verify(context, reactor)`.
  using Method = std::function<void(grpc::ClientContext*, Reactor*)>;

  // Answers that may lie unread before no more is read.
  static constexpr size_t kMaxUnread = 32;

  using Received = typename MessageStream<Request, Response>::Received;
  using MessageStream<Request, Response>::Receive;

  // gRPC holds the object until the stream is done, whoever lets go before.
  // `live` is the channel's and outlives the object.
  static std::shared_ptr<BidiCall> Start(const Method& method,
                                         absl::Time deadline,
                                         const std::string& token,
                                         LiveCalls& live) {
    std::shared_ptr<BidiCall> call(new BidiCall(live));
    call->self_ = call;
    rpc::PrepareCall(call->context_, deadline, token);
    method(&call->context_, call.get());
    // Reads and writes are started outside reactions: the hold keeps OnDone
    // away.
    call->AddHold();
    call->StartRead(&call->response_);
    call->StartCall();
    return call;
  }
  ~BidiCall() override { left_.live.Forget(this); }

  void Send(Request message) override {
    absl::MutexLock lock(&mu_);
    if (broken_ || done_ || finishing_) return;
    unsent_.push_back(std::move(message));
    WriteNext();
  }

  std::optional<absl::StatusOr<Received>> Receive(
      absl::Time deadline) override {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !received_.empty() || done_ || broken_ || cancelled_;
    };
    if (!mu_.AwaitWithDeadline(absl::Condition(&ready), deadline)) {
      return std::nullopt;
    }
    if (cancelled_) return absl::CancelledError("the request was cancelled");
    if (!received_.empty()) {
      Received received = std::move(received_.front());
      received_.pop_front();
      ReadNext();
      return received;
    }
    if (!done_) {
      // The stream broke and its status is on its way, once nothing holds it.
      finishing_ = true;
      WriteNext();
      mu_.Await(absl::Condition(&done_));
    }
    if (!status_.ok()) return status_;
    return absl::UnavailableError("the service ended the stream early");
  }

  void Finish() override {
    absl::MutexLock lock(&mu_);
    finishing_ = true;
    // Unread answers would keep the end away.
    if (!reading_ && !broken_ && !done_) context_.TryCancel();
    WriteNext();
  }

  void Cancel() override {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    if (!done_) context_.TryCancel();
  }

  bool done() const override {
    absl::MutexLock lock(&mu_);
    return done_;
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (!ok) {
      broken_ = true;  // whether it ended well or not, nothing more comes
      return;
    }
    received_.push_back({std::move(response_), absl::Now()});
    if (finishing_) received_.clear();  // nobody asks any more
    ReadNext();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) broken_ = true;
    WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    // Outlives the lock: the caller may have let go already.
    const std::shared_ptr<BidiCall> last = std::move(self_);
    absl::MutexLock lock(&mu_);
    done_ = true;
    status_ = rpc::FromGrpcStatus(status);
  }

 private:
  // Leaves once all members behind it are gone.
  struct Leaving {
    LiveCalls& live;
    ~Leaving() { live.Leave(); }
  };

  explicit BidiCall(LiveCalls& live) : left_{live} { live.Enter(this); }

  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reading_ || broken_ || done_ || received_.size() >= kMaxUnread) return;
    reading_ = true;
    this->StartRead(&response_);
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || !hold_) return;
    if (!broken_ && !unsent_.empty()) {
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

  Leaving left_;  // before all that holds the channel
  grpc::ClientContext context_;
  Request request_;    // being written
  Response response_;  // being read

  mutable absl::Mutex mu_;
  std::deque<Request> unsent_ ABSL_GUARDED_BY(mu_);
  std::deque<Received> received_ ABSL_GUARDED_BY(mu_);
  bool reading_ ABSL_GUARDED_BY(mu_) = true;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;     // writes go nowhere
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;  // the hold is to be given up
  bool hold_ ABSL_GUARDED_BY(mu_) = true;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<BidiCall> self_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_BIDI_CALL_H_
