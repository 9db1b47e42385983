#include "services/gateway/adapters/remote_generations.h"

#include <atomic>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"
#include "common/rpc/auth.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_generation.h"
#include "common/rpc/status.h"
#include "common/rpc/unary_call.h"
#include "grpcpp/support/client_callback.h"

namespace foretoken::gateway {
namespace {

// Deadline of a call that asks for the model's properties.
constexpr absl::Duration kModelTime = absl::Seconds(5);

// A principal that is not a valid name. An orchestrator that lets the gateway
// speak for its callers refuses it; any other ignores it like every principal.
constexpr char kInvalidPrincipal[] = "not a name";

// Calls for callers that have shown a key are made in their name.
void AddPrincipal(grpc::ClientContext& context, const Caller& caller) {
  if (caller.authenticated) {
    context.AddMetadata(rpc::kPrincipalKey, caller.name);
  }
}

// One Generate call: reads a message at a time, and none while its listener
// does not want any. gRPC's flow control then holds up the orchestrator, and
// that the request.
class GenerateCall final : public rpc::LiveCall,
                           public grpc::ClientReadReactor<v1::GenerateResponse>,
                           public GenerationCall {
 public:
  static std::shared_ptr<GenerateCall> Start(
      v1::Generation::Stub& stub, rpc::Peer& peer, v1::GenerateRequest request,
      const GenerationRequest& from,
      std::shared_ptr<GenerationListener> listener) {
    std::shared_ptr<GenerateCall> call(new GenerateCall(
        peer.calls, std::move(request), from.deadline, std::move(listener)));
    call->self_ = call;
    rpc::PrepareCall(call->context_, from.deadline, peer.endpoint.token.Get());
    rpc::AddTraceparent(call->context_, from.traceparent);
    AddPrincipal(call->context_, from.caller);
    stub.async()->Generate(&call->context_, &call->request_, call.get());
    // Resume reads outside of reactions: the hold delays OnDone until the last
    // read has failed.
    call->AddHold();
    call->StartRead(&call->response_);
    call->StartCall();
    return call;
  }
  ~GenerateCall() override { Forget(); }

  void Resume() override {
    {
      absl::MutexLock lock(&mu_);
      if (state_ == State::kDelivering) resumed_ = true;
      if (state_ != State::kPaused) return;
      state_ = State::kReading;
    }
    StartRead(&response_);
  }
  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
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
    std::exchange(listener_, nullptr)->OnEnd(Reason(status));
    SetDone();
  }

 private:
  enum class State { kReading, kDelivering, kPaused, kEnded };

  GenerateCall(rpc::LiveCalls& calls, v1::GenerateRequest request,
               absl::Time deadline,
               std::shared_ptr<GenerationListener> listener)
      : LiveCall(calls),
        request_(std::move(request)),
        deadline_(deadline),
        listener_(std::move(listener)) {}

  bool Deliver() {
    if (response_.has_delta()) {
      return listener_->OnDelta(rpc::FromProto(response_.delta()));
    }
    if (response_.has_result()) {
      has_result_ = true;
      listener_->OnResult(rpc::FromProto(response_.result()));
    }
    return true;
  }

  absl::Status Reason(const grpc::Status& grpc_status) const {
    const absl::Status status =
        rpc::StatusOfCall(grpc_status, cancelled_, deadline_ - MonotonicNow());
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

// A request that cannot be sent, which has ended.
class NoCall final : public GenerationCall {
 public:
  void Resume() override {}
  void Cancel() override {}
};

absl::Status NoAnswer() {
  return absl::UnavailableError("the orchestrator has not answered yet");
}
absl::Status NoAnswerAnyMore() {
  return absl::UnavailableError(
      "the orchestrator no longer answers what model it serves");
}

ServedModel FromProto(const v1::GetModelInfoResponse& info) {
  ServedModel model;
  model.name = info.model();
  model.max_positions = info.max_positions();
  model.modes.assign(info.modes().begin(), info.modes().end());
  const auto mode = rpc::FromProto(info.default_speculation());
  if (mode.ok() && mode->has_value()) model.default_mode = (*mode)->name();
  model.tokenizer_fingerprint = info.tokenizer_fingerprint();
  return model;
}

}  // namespace

RemoteGenerations::RemoteGenerations(
    const rpc::Endpoint& orchestrator, bool with_principals,
    const ModelTimes& times, const std::shared_ptr<grpc::Channel>& unwatched)
    : stub_(v1::Generation::NewStub(orchestrator.channel)),
      unwatched_(unwatched == nullptr ? nullptr
                                      : v1::Generation::NewStub(unwatched)),
      times_(times),
      peer_(orchestrator) {
  if (with_principals) {
    absl::MutexLock lock(&mu_);
    principals_ = NoAnswer();
  }
  refresher_ = std::thread([this] { Refresh(); });
}

RemoteGenerations::~RemoteGenerations() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  refresher_.join();
}

void RemoteGenerations::Refresh() {
  while (true) {
    AskForModel();
    AskForReason();
    absl::MutexLock lock(&mu_);
    if (AwaitFor(mu_, absl::Condition(&stopping_), times_.refresh)) return;
  }
}

void RemoteGenerations::AskForModel() {
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = MonotonicNow();
    if (asking_ || now < ask_again_) return;
    asking_ = true;
    ask_again_ = now + times_.refresh;
  }
  rpc::UnaryCall<v1::GetModelInfoRequest, v1::GetModelInfoResponse>::Start(
      [this](auto* context, auto* request, auto* response, auto done) {
        context->set_wait_for_ready(true);
        stub_->async()->GetModelInfo(context, request, response,
                                     std::move(done));
      },
      {}, MonotonicNow() + kModelTime, peer_,
      [this](const absl::Status& status,
             const v1::GetModelInfoResponse& response) {
        absl::MutexLock lock(&mu_);
        asking_ = false;
        if (!status.ok()) {
          ask_again_ = absl::InfinitePast();
          return;
        }
        reason_ = absl::OkStatus();
        model_ = FromProto(response);
        expires_ = MonotonicNow() + times_.expiry;
      });
}

void RemoteGenerations::AskForReason() {
  if (unwatched_ == nullptr || rpc::IsUp(*peer_.endpoint.channel)) return;
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(asking_reason_, true)) return;
  }
  rpc::UnaryCall<v1::GetModelInfoRequest, v1::GetModelInfoResponse>::Start(
      [this](auto* context, auto* request, auto* response, auto done) {
        unwatched_->async()->GetModelInfo(context, request, response,
                                          std::move(done));
      },
      {}, MonotonicNow() + kModelTime, peer_,
      [this](const absl::Status& status, const v1::GetModelInfoResponse&) {
        absl::MutexLock lock(&mu_);
        asking_reason_ = false;
        // It is serving again since, and may have said so.
        if (rpc::IsUp(*peer_.endpoint.channel)) return;
        // No other code is the orchestrator's own word about its model: gRPC
        // itself never gives this one.
        reason_ = absl::IsFailedPrecondition(status)
                      ? absl::UnavailableError(status.message())
                      : absl::OkStatus();
      });
}

void RemoteGenerations::CheckPrincipals() {
  {
    absl::MutexLock lock(&mu_);
    // Only with a model: the token is known then, and a refusal is the name's.
    if (principals_.ok() || !model_.has_value() || checking_ ||
        MonotonicNow() < check_again_) {
      return;
    }
    checking_ = true;
  }
  rpc::UnaryCall<v1::GetModelInfoRequest, v1::GetModelInfoResponse>::Start(
      [this](auto* context, auto* request, auto* response, auto done) {
        context->AddMetadata(rpc::kPrincipalKey, kInvalidPrincipal);
        stub_->async()->GetModelInfo(context, request, response,
                                     std::move(done));
      },
      {}, MonotonicNow() + kModelTime, peer_,
      [this](const absl::Status& status, const v1::GetModelInfoResponse&) {
        absl::MutexLock lock(&mu_);
        checking_ = false;
        check_again_ = MonotonicNow() + times_.refresh;
        if (absl::IsUnauthenticated(status)) {
          principals_ = absl::OkStatus();
        } else if (status.ok()) {
          // All callers would share the gateway's account and cache scopes.
          const absl::Status refused = absl::UnavailableError(
              "the orchestrator does not let this server speak for its "
              "callers: its token needs speaks_for_others in the "
              "orchestrator's token file");
          if (principals_ != refused) {
            FORETOKEN_LOG(kError, refused.message());
          }
          principals_ = refused;
        }
      });
}

absl::StatusOr<ServedModel> RemoteGenerations::Model() {
  AskForModel();
  CheckPrincipals();
  absl::MutexLock lock(&mu_);
  if (!reason_.ok()) return reason_;
  if (!model_.has_value()) return NoAnswer();
  if (MonotonicNow() > expires_) return NoAnswerAnyMore();
  if (!principals_.ok()) return principals_;
  return *model_;
}

bool RemoteGenerations::Ready() {
  return Model().ok() && rpc::IsUp(*peer_.endpoint.channel);
}

std::shared_ptr<GenerationCall> RemoteGenerations::Start(
    GenerationRequest request, std::shared_ptr<GenerationListener> listener) {
  v1::GenerateRequest message;
  const absl::Status converted = rpc::ToProto(request, &message);
  if (!converted.ok()) {
    listener->OnEnd(converted);
    return std::make_shared<NoCall>();
  }
  return GenerateCall::Start(*stub_, peer_, std::move(message), request,
                             std::move(listener));
}

void RemoteGenerations::Tokenize(const Caller& caller, std::string text,
                                 bool add_special_tokens, absl::Time deadline,
                                 OnTokens done) {
  v1::TokenizeRequest request;
  request.set_text(std::move(text));
  request.set_add_special_tokens(add_special_tokens);
  rpc::UnaryCall<v1::TokenizeRequest, v1::TokenizeResponse>::Start(
      [&](auto* context, auto* sent, auto* response, auto on_done) {
        AddPrincipal(*context, caller);
        stub_->async()->Tokenize(context, sent, response, std::move(on_done));
      },
      std::move(request), deadline, peer_,
      [done = std::move(done)](const absl::Status& status,
                               const v1::TokenizeResponse& response) {
        if (status.ok()) {
          done(rpc::Values(response.token_ids()));
        } else {
          done(status);
        }
      });
}

void RemoteGenerations::Detokenize(const Caller& caller,
                                   std::vector<TokenId> tokens,
                                   absl::Time deadline, OnText done) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  rpc::UnaryCall<v1::DetokenizeRequest, v1::DetokenizeResponse>::Start(
      [&](auto* context, auto* sent, auto* response, auto on_done) {
        AddPrincipal(*context, caller);
        stub_->async()->Detokenize(context, sent, response, std::move(on_done));
      },
      std::move(request), deadline, peer_,
      [done = std::move(done)](const absl::Status& status,
                               const v1::DetokenizeResponse& response) {
        if (status.ok()) {
          done(response.text());
        } else {
          done(status);
        }
      });
}

}  // namespace foretoken::gateway
