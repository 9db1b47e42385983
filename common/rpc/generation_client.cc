#include "common/rpc/generation_client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/auth.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_generation.h"
#include "common/rpc/status.h"
#include "common/rpc/unary_call.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/client_callback.h"

namespace foretoken::rpc {
namespace {

// Names the caller for which a call is made, if it was authenticated.
void AddPrincipal(grpc::ClientContext& context, const Caller& caller) {
  if (caller.authenticated) context.AddMetadata(kPrincipalKey, caller.name);
}

// One Generate call. It reads one message at a time and stops reading while its
// listener wants no more; gRPC's flow control then holds up the orchestrator,
// and the orchestrator the request.
//
// States: kReading, a read is outstanding; kDelivering, a message is with the
// listener; kPaused, no read is outstanding until Resume or Cancel; kEnded, the
// last read has failed. A read is started only on the way to kReading, so at
// most one is outstanding.
class GenerateCall final : public LiveCall,
                           public grpc::ClientReadReactor<v1::GenerateResponse>,
                           public GenerationCall {
 public:
  static std::shared_ptr<GenerateCall> Start(
      v1::Generation::Stub& stub, Peer& peer, v1::GenerateRequest request,
      const GenerationRequest& from,
      std::shared_ptr<GenerationListener> listener) {
    std::shared_ptr<GenerateCall> call(new GenerateCall(
        peer.calls, std::move(request), from.deadline, std::move(listener)));
    // The call keeps itself alive until OnDone: gRPC uses it until then, while
    // the caller may drop its reference at any time.
    call->self_ = call;
    PrepareCall(call->context_, from.deadline, peer.endpoint.token.Get());
    AddTraceparent(call->context_, from.traceparent);
    AddPrincipal(call->context_, from.caller);
    stub.async()->Generate(&call->context_, &call->request_, call.get());
    // Resume starts reads outside of reactions, which gRPC allows only under a
    // hold: the hold delays OnDone until the last read has failed and
    // OnReadDone removes it.
    call->AddHold();
    call->StartRead(&call->response_);
    call->StartCall();
    return call;
  }
  ~GenerateCall() override { Forget(); }

  void Resume() override {
    {
      absl::MutexLock lock(&mu_);
      // A Resume during delivery comes before the pause it answers: remember
      // it.
      if (state_ == State::kDelivering) resumed_ = true;
      if (state_ != State::kPaused) return;
      state_ = State::kReading;
    }
    StartRead(&response_);
  }
  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
    // A paused call has no read outstanding that could fail and release the
    // hold: start one.
    Resume();  // the read that fails is the last
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        absl::MutexLock lock(&mu_);
        state_ = State::kEnded;
      }
      RemoveHold();
      return;
    }
    {
      absl::MutexLock lock(&mu_);
      state_ = State::kDelivering;
      resumed_ = false;
    }
    const bool more = Deliver();
    {
      absl::MutexLock lock(&mu_);
      if (!more && !resumed_ && !cancelled_) {
        state_ = State::kPaused;
        return;
      }
      state_ = State::kReading;
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    // The caller may already have dropped its reference.
    const std::shared_ptr<GenerateCall> last = std::move(self_);
    // OnEnd is the listener's last call; dropping it here breaks any cycle
    // between call and listener. SetDone comes last, since a waiter may then
    // destroy the client.
    std::exchange(listener_, nullptr)->OnEnd(Reason(status));
    SetDone();
  }

 private:
  enum class State { kReading, kDelivering, kPaused, kEnded };

  GenerateCall(LiveCalls& calls, v1::GenerateRequest request,
               absl::Time deadline,
               std::shared_ptr<GenerationListener> listener)
      : LiveCall(calls),
        request_(std::move(request)),
        deadline_(deadline),
        listener_(std::move(listener)) {}

  bool Deliver() {
    if (response_.has_delta()) {
      return listener_->OnDelta(FromProto(response_.delta()));
    }
    if (response_.has_result()) {
      // A server of a version without embeddings does not read the pooling.
      if (request_.pooling() != v1::POOLING_UNSPECIFIED &&
          response_.result().embedding().empty()) {
        return true;
      }
      has_result_ = true;
      listener_->OnResult(FromProto(response_.result()));
    }
    return true;
  }

  absl::Status Reason(const grpc::Status& grpc_status) const {
    const absl::Status status =
        StatusOfCall(grpc_status, cancelled_, deadline_ - MonotonicNow());
    // A stream that ends with OK but without a result was cut short by a faulty
    // server.
    if (status.ok() && !has_result_) {
      return absl::DataLossError("the stream ended without a last message");
    }
    return status;
  }

  grpc::ClientContext context_;
  const v1::GenerateRequest request_;
  v1::GenerateResponse response_;  // being read
  const absl::Time deadline_;
  std::shared_ptr<GenerationListener> listener_;  // of the reactions
  bool has_result_ = false;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<GenerateCall> self_;

  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kReading;
  bool resumed_ ABSL_GUARDED_BY(mu_) = false;  // while delivering
};

// A request that cannot be converted. It ends on one of gRPC's threads, as all
// calls do, so that Start never calls the listener itself.
class UnsentCall final : public LiveCall, public GenerationCall {
 public:
  static std::shared_ptr<UnsentCall> Start(
      Peer& peer, absl::Status reason,
      std::shared_ptr<GenerationListener> listener) {
    std::shared_ptr<UnsentCall> call(
        new UnsentCall(peer.calls, std::move(reason), std::move(listener)));
    call->self_ = call;
    call->alarm_.Set(GrpcTime(MonotonicNow()),
                     [raw = call.get()](bool) { raw->OnDone(); });
    return call;
  }
  ~UnsentCall() override { Forget(); }

  void Resume() override {}
  void Cancel() override {}

 private:
  UnsentCall(LiveCalls& calls, absl::Status reason,
             std::shared_ptr<GenerationListener> listener)
      : LiveCall(calls),
        reason_(std::move(reason)),
        listener_(std::move(listener)) {}

  void OnDone() {
    const std::shared_ptr<UnsentCall> last = std::move(self_);
    std::exchange(listener_, nullptr)->OnEnd(reason_);
    SetDone();
  }

  const absl::Status reason_;
  std::shared_ptr<GenerationListener> listener_;
  std::shared_ptr<UnsentCall> self_;
  grpc::Alarm alarm_;
};

// A unary call as its caller holds it.
class PendingUnary final : public PendingCall {
 public:
  explicit PendingUnary(std::shared_ptr<LiveCall> call)
      : call_(std::move(call)) {}
  void Cancel() override { call_->Cancel(); }

 private:
  const std::shared_ptr<LiveCall> call_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GenerationClient>> GenerationClient::Connect(
    const std::string& address, const ChannelOptions& options) {
  Endpoint server;
  FORETOKEN_ASSIGN_OR_RETURN(server.channel, CreateChannel(address, options));
  FORETOKEN_ASSIGN_OR_RETURN(server.token, ReadToken(options));
  return std::make_unique<GenerationClient>(std::move(server));
}

void GenerationClient::AskInfo(const InfoQuestion& question,
                               absl::Time deadline, OnInfo done) {
  UnaryCall<v1::GetModelInfoRequest, v1::GetModelInfoResponse>::Start(
      [&](auto* context, auto* request, auto* response, auto on_done) {
        context->set_wait_for_ready(question.wait_for_ready);
        if (!question.principal.empty()) {
          context->AddMetadata(kPrincipalKey, question.principal);
        }
        stub_->async()->GetModelInfo(context, request, response,
                                     std::move(on_done));
      },
      {}, deadline, peer_,
      [done = std::move(done)](const absl::Status& status,
                               const v1::GetModelInfoResponse& response) {
        if (status.ok()) {
          done(FromProto(response));
        } else {
          done(status);
        }
      });
}

absl::StatusOr<GeneratorInfo> GenerationClient::Info(absl::Time deadline) {
  absl::Notification answered;
  absl::StatusOr<GeneratorInfo> result;
  AskInfo({}, std::min(deadline, MonotonicNow() + kInfoTime),
          [&](absl::StatusOr<GeneratorInfo> info) {
            result = std::move(info);
            answered.Notify();
          });
  // Waiting without a timeout is safe: the call has a deadline, after which
  // gRPC ends it.
  answered.WaitForNotification();
  return result;
}

std::shared_ptr<GenerationCall> GenerationClient::Start(
    GenerationRequest request, std::shared_ptr<GenerationListener> listener) {
  v1::GenerateRequest message;
  const absl::Status converted = ToProto(request, &message);
  if (!converted.ok()) {
    return UnsentCall::Start(peer_, converted, std::move(listener));
  }
  return GenerateCall::Start(*stub_, peer_, std::move(message), request,
                             std::move(listener));
}

std::shared_ptr<PendingCall> GenerationClient::Tokenize(const Caller& caller,
                                                        std::string text,
                                                        bool add_special_tokens,
                                                        absl::Time deadline,
                                                        OnTokens done) {
  v1::TokenizeRequest request;
  request.set_text(std::move(text));
  request.set_add_special_tokens(add_special_tokens);
  return std::make_shared<PendingUnary>(
      UnaryCall<v1::TokenizeRequest, v1::TokenizeResponse>::Start(
          [&](auto* context, auto* sent, auto* response, auto on_done) {
            AddPrincipal(*context, caller);
            stub_->async()->Tokenize(context, sent, response,
                                     std::move(on_done));
          },
          std::move(request), deadline, peer_,
          [done = std::move(done)](const absl::Status& status,
                                   const v1::TokenizeResponse& response) {
            if (status.ok()) {
              done(Values(response.token_ids()));
            } else {
              done(status);
            }
          }));
}

std::shared_ptr<PendingCall> GenerationClient::Detokenize(
    const Caller& caller, std::vector<TokenId> tokens, absl::Time deadline,
    OnText done) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  return std::make_shared<PendingUnary>(
      UnaryCall<v1::DetokenizeRequest, v1::DetokenizeResponse>::Start(
          [&](auto* context, auto* sent, auto* response, auto on_done) {
            AddPrincipal(*context, caller);
            stub_->async()->Detokenize(context, sent, response,
                                       std::move(on_done));
          },
          std::move(request), deadline, peer_,
          [done = std::move(done)](const absl::Status& status,
                                   const v1::DetokenizeResponse& response) {
            if (status.ok()) {
              done(response.text());
            } else {
              done(status);
            }
          }));
}

}  // namespace foretoken::rpc
