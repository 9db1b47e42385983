// UnaryCall: client side of a unary call over gRPC's callback API. gRPC keeps
// the call alive until it is done. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_UNARY_CALL_H_
#define FORETOKEN_COMMON_RPC_UNARY_CALL_H_

#include <atomic>
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

namespace foretoken::rpc {

template <typename Request, typename Response>
class UnaryCall final : public LiveCall {
 public:
  // `response` is valid if the status is OK.
  using Done =
      std::function<void(const absl::Status&, const Response& response)>;
  // A stub's method:
  // `stub.async()->GetPhrases(context, request, response, done)`.
  using Method =
      std::function<void(grpc::ClientContext*, const Request*, Response*,
                         std::function<void(grpc::Status)>)>;

  // `peer` must outlive the call.
  static std::shared_ptr<UnaryCall> Start(const Method& method, Request request,
                                          absl::Time deadline, Peer& peer,
                                          Done done) {
    std::shared_ptr<UnaryCall> call(new UnaryCall(
        peer.calls, std::move(request), deadline, std::move(done)));
    PrepareCall(call->context_, deadline, peer.endpoint.token.Get());
    method(&call->context_, &call->request_, &call->response_,
           [call](const grpc::Status& status) { call->OnDone(status); });
    return call;
  }
  ~UnaryCall() override { Forget(); }

  // After this returns, Done is not running and will not run.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    on_done_ = nullptr;
  }
  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  UnaryCall(LiveCalls& calls, Request request, absl::Time deadline, Done done)
      : LiveCall(calls),
        request_(std::move(request)),
        deadline_(deadline),
        on_done_(std::move(done)) {}

  void OnDone(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    SetDone();
    if (on_done_ == nullptr) return;
    std::exchange(on_done_, nullptr)(
        StatusOfCall(status, cancelled_, deadline_ - MonotonicNow()),
        response_);
  }

  grpc::ClientContext context_;
  const Request request_;
  const absl::Time deadline_;
  Response response_;
  std::atomic<bool> cancelled_{false};
  absl::Mutex mu_;  // held while on_done_ runs
  Done on_done_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_UNARY_CALL_H_
