#include "services/orchestrator/server.h"

#include <limits>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_generation.h"
#include "common/rpc/request_stream.h"
#include "common/rpc/status.h"
#include "services/orchestrator/core/request_memory.h"

namespace foretoken::orchestrator {
namespace {

// The verifiers of a pool.
class RemoteTarget final : public Target {
 public:
  RemoteTarget(const RemoteVerifierOptions& options, VerifierPool& pool)
      : options_(options), pool_(pool) {}

  absl::StatusOr<TargetInfo> Info() const override {
    FORETOKEN_ASSIGN_OR_RETURN(VerifierInfo info, pool_.Info());
    TargetInfo target;
    target.vocab_size = info.vocab_size;
    target.max_positions = info.max_positions;
    target.eos_tokens = std::move(info.end_tokens);
    target.max_rows_per_session = info.max_rows_per_session;
    target.costs = PassCosts(std::move(info.pass_costs));
    target.numerics_fingerprint = std::move(info.numerics_fingerprint);
    target.tokenizer_fingerprint = std::move(info.tokenizer_fingerprint);
    return target;
  }

  std::unique_ptr<Verifier> NewVerifier() override {
    return std::make_unique<RemoteVerifier>(options_, pool_);
  }

 private:
  const RemoteVerifierOptions options_;
  VerifierPool& pool_;
};

struct CallContext {
  GenerationService& generation;
  rpc::SilentCalls& silent;
  RetryGate& gate;
  const std::string& model_name;
  PrincipalMetrics::Account& account;
  Caller caller;
  std::string traceparent;  // empty if the call has none
};

template <typename Request, typename Response>
class CallStream : public rpc::RequestStream<Request, Response> {
 public:
  using Message = Response;

  CallStream(rpc::StreamServer& server, CallContext call)
      : CallStream::RequestStream(
            server, call.generation.memory(), call.silent, call.caller.name,
            MaxWireBytes(call.generation.options().max_prompt_bytes)),
        call_context_(std::move(call)) {}

 protected:
  GenerationService& generation() const { return call_context_.generation; }
  const Caller& caller() const { return call_context_.caller; }
  const CallContext& call_context() const { return call_context_; }

  // Drops what is left of the request.
  virtual void DropRequest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {}

  // Ends the call after its answers.
  void Finish(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    absl::Status hinted = generation().WithRetryHint(status, caller());
    if (absl::IsResourceExhausted(hinted)) {
      DropRequest();
      this->ReleaseRequest();
      if (this->charged()) {
        this->HoldFinish(call_context_.gate.Hold(
            caller().name, this->deadline() - MonotonicNow(), hinted));
      }
    }
    this->EndAfterSends(hinted);
    this->Continue();  // it may have ended before
  }

 private:
  const CallContext call_context_;
};

// One Generate call. A slow reader delays only its own request; a cancelled
// call cancels its request.
class GenerateStream final
    : public CallStream<v1::GenerateRequest, v1::GenerateResponse>,
      public GenerationSink {
 public:
  using CallStream::CallStream;

  absl::Status OnDelta(const GenerationDelta& delta) override {
    call_context().account.OnGeneratedTokens(
        static_cast<int64_t>(delta.token_ids.size()));
    v1::GenerateResponse response;
    rpc::ToProto(delta, response.mutable_delta());
    return SendWhenRoom(std::move(response));
  }
  absl::Status OnResult(const GenerationSummary& summary) override {
    call_context().account.OnPromptTokens(summary.prompt_tokens);
    v1::GenerateResponse response;
    rpc::ToProto(summary, response.mutable_result());
    return SendWhenRoom(std::move(response));
  }
  void OnEnd(const absl::Status& status) override {
    call_context().account.OnEnd(status.code());
    // The finished call may drop the last other reference.
    const auto self = shared_from_this();
    absl::MutexLock lock(&mu_);
    running_ = false;
    Finish(status);
  }

 private:
  // Messages that may wait for a slow reader.
  static constexpr size_t kMaxWaiting = 64;

  void OnRequest(absl::StatusOr<v1::GenerateRequest> proto) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    running_ = true;  // first: Convert may release mu_
    absl::StatusOr<GenerationRequest> request = Convert(std::move(proto));
    mu_.Unlock();  // a refused request ends inside Start
    auto call = generation().Start(std::move(request), *this);
    mu_.Lock();
    call_ = std::move(call);
    if (ended()) CancelCall();  // ended while there was nothing to cancel
  }
  absl::StatusOr<GenerationRequest> Convert(
      absl::StatusOr<v1::GenerateRequest> proto)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    FORETOKEN_RETURN_IF_ERROR(proto.status());
    FORETOKEN_ASSIGN_OR_RETURN(GenerationRequest request,
                               rpc::FromProto(*std::move(proto)));
    FORETOKEN_RETURN_IF_ERROR(Charge(GenerateBytes(request)));
    request.caller = caller();
    request.deadline = deadline();
    request.traceparent = call_context().traceparent;
    return request;
  }
  void OnClosed(const absl::Status&) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    CancelCall();
  }
  void CancelCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!running_ || call_ == nullptr) return;
    const auto call = call_;
    mu_.Unlock();  // a request that still waits ends inside Cancel
    call->Cancel();
    mu_.Lock();
  }
  bool CanFinish() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !running_;
  }
  std::string LogName(const absl::Status&) const override { return ""; }

  // Returns Cancelled once the client is gone.
  absl::Status SendWhenRoom(v1::GenerateResponse response) {
    absl::MutexLock lock(&mu_);
    const auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return ended() ||
             (unsent() < kMaxWaiting && unsent_bytes() < kUnsentBytes);
    };
    mu_.Await(absl::Condition(&room));
    if (ended()) return absl::CancelledError("the client is gone");
    Send(std::move(response));
    return absl::OkStatus();
  }

  std::shared_ptr<GenerationService::Call> call_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
};

// One Tokenize or Detokenize call.
template <typename Request, typename Response>
class TextStream : public CallStream<Request, Response> {
 public:
  using TextStream::CallStream::CallStream;

 protected:
  // The size of the request's text or ids, after which callers share the
  // threads, and its name.
  virtual int64_t Bytes() const = 0;
  virtual const char* Field() const = 0;
  // Memory of the request and its answer.
  virtual int64_t Memory() const = 0;
  // Fills the answer, on a thread of the pool.
  virtual absl::Status Answer(Response& response) = 0;

  bool HasEnded() const {
    absl::MutexLock lock(&this->mu_);
    return this->ended();
  }

  Request request_;

 private:
  void OnRequest(absl::StatusOr<Request> request) final
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    running_ = true;  // first: Admit may release mu_
    const absl::Status admitted = Admit(std::move(request));
    if (!admitted.ok()) {
      running_ = false;
      this->Finish(admitted);
      return;
    }
    this->mu_.Unlock();  // refused work ends inside RunTextWork
    const auto ticket = this->generation().RunTextWork(
        this->caller(), Bytes(), this->deadline(),
        [self = this->shared_from_this(), this](const absl::Status& status) {
          Run(status);
        });
    this->mu_.Lock();
    ticket_ = ticket;
    if (this->ended()) Cancel();  // ended while there was nothing to cancel
  }
  absl::Status Admit(absl::StatusOr<Request> request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    FORETOKEN_RETURN_IF_ERROR(request.status());
    request_ = *std::move(request);
    FORETOKEN_RETURN_IF_ERROR(
        this->generation().CheckBytes(Field(), static_cast<size_t>(Bytes())));
    return this->Charge(Memory());
  }
  void Run(absl::Status status) {
    Response response;
    if (status.ok()) status = Answer(response);
    absl::MutexLock lock(&this->mu_);
    running_ = false;
    if (status.ok()) this->Send(std::move(response));
    this->Finish(status);
  }
  void Cancel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    if (!running_) return;
    const RequestPool::Ticket ticket = ticket_;
    this->mu_.Unlock();  // work that still waits ends inside
    this->generation().CancelTextWork(ticket);
    this->mu_.Lock();
  }
  void OnClosed(const absl::Status&) final
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    Cancel();
  }
  void DropRequest() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    request_ = Request();
  }
  bool CanFinish() const final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return !running_;
  }
  std::string LogName(const absl::Status&) const final { return ""; }

  RequestPool::Ticket ticket_ ABSL_GUARDED_BY(this->mu_) =
      RequestPool::kNotWaiting;
  bool running_ ABSL_GUARDED_BY(this->mu_) = false;
};

class TokenizeStream final
    : public TextStream<v1::TokenizeRequest, v1::TokenizeResponse> {
 public:
  using TextStream::TextStream;

 private:
  int64_t Bytes() const override {
    return static_cast<int64_t>(request_.text().size());
  }
  const char* Field() const override { return "text"; }
  int64_t Memory() const override { return TokenizeBytes(Bytes()); }
  absl::Status Answer(v1::TokenizeResponse& response) override {
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::vector<TokenId> ids,
        generation().Tokenize(caller().name, request_.text(),
                              request_.add_special_tokens(), deadline(),
                              [this] { return HasEnded(); }));
    response.mutable_token_ids()->Add(ids.begin(), ids.end());
    return absl::OkStatus();
  }
};

class DetokenizeStream final
    : public TextStream<v1::DetokenizeRequest, v1::DetokenizeResponse> {
 public:
  using TextStream::TextStream;

 private:
  absl::Span<const TokenId> Ids() const {
    return {request_.token_ids().data(),
            static_cast<size_t>(request_.token_ids_size())};
  }
  int64_t Bytes() const override {
    return static_cast<int64_t>(Ids().size() * sizeof(TokenId));
  }
  const char* Field() const override { return "token_ids"; }
  int64_t Memory() const override {
    return DetokenizeBytes(Ids(), generation().tokenizer());
  }
  absl::Status Answer(v1::DetokenizeResponse& response) override {
    FORETOKEN_ASSIGN_OR_RETURN(*response.mutable_text(),
                               generation().Detokenize(Ids()));
    return absl::OkStatus();
  }
};

class ModelInfoStream final
    : public CallStream<v1::GetModelInfoRequest, v1::GetModelInfoResponse> {
 public:
  using CallStream::CallStream;

 private:
  void OnRequest(absl::StatusOr<v1::GetModelInfoRequest> request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    v1::GetModelInfoResponse response;
    const absl::Status status =
        request.ok() ? Answer(response) : request.status();
    if (status.ok()) Send(std::move(response));
    Finish(status);
  }
  absl::Status Answer(v1::GetModelInfoResponse& response) const {
    FORETOKEN_ASSIGN_OR_RETURN(const TargetInfo info, generation().Info());
    response.set_model(call_context().model_name);
    response.set_vocab_size(info.vocab_size);
    response.set_max_positions(static_cast<int32_t>(info.max_positions));
    for (std::string& mode : generation().modes()) {
      response.add_modes(std::move(mode));
    }
    response.set_numerics_fingerprint(info.numerics_fingerprint);
    const Tokenizer* const tokenizer = generation().tokenizer();
    response.set_tokenizer_fingerprint(tokenizer == nullptr
                                           ? info.tokenizer_fingerprint
                                           : tokenizer->fingerprint_bytes());
    response.set_max_tree_nodes(generation().options().max_tree_nodes);
    rpc::ToProto(generation().default_mode(),
                 response.mutable_default_speculation())
        .IgnoreError();  // a mode of requests has its message
    return absl::OkStatus();
  }
  std::string LogName(const absl::Status&) const override { return ""; }
};

// GenerationService admits requests; the streams have no limit of their own.
rpc::StreamOptions Unlimited(const OrchestratorServerOptions& server) {
  rpc::StreamOptions options;
  options.max_streams = std::numeric_limits<int32_t>::max();
  options.stall_timeout = server.stall_timeout;
  options.retry_after = server.retry_after;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OrchestratorServer>> OrchestratorServer::Create(
    const OrchestratorServerOptions& options,
    std::unique_ptr<VerifierPool> pool,
    std::shared_ptr<const Tokenizer> tokenizer, metrics::Registry& registry) {
  const std::string fingerprint =
      tokenizer == nullptr ? "" : tokenizer->fingerprint_bytes();
  std::unique_ptr<OrchestratorServer> server(
      new OrchestratorServer(options, std::move(pool), registry));
  const auto breaker_gauge = [&registry](const std::string& service) {
    return [&gauge = registry.GetGauge(metrics::kBreakerState, service)](
               CircuitBreaker::State state) {
      gauge.Set(static_cast<double>(state));
    };
  };
  GenerationOptions generation = options;
  if (!options.otlp_endpoint.empty()) {
    FORETOKEN_RETURN_IF_ERROR(server->StartTracing(options.otlp_endpoint));
    generation.spans = server->spans_.get();
  }
  auto drafters = std::make_unique<DraftServices>(options.drafters, fingerprint,
                                                  breaker_gauge);
  server->drafters_ = drafters.get();
  FORETOKEN_ASSIGN_OR_RETURN(
      server->generation_,
      GenerationService::Create(
          generation,
          std::make_unique<RemoteTarget>(options.verifier, *server->pool_),
          std::move(drafters), std::move(tokenizer), server->metrics_));
  server->silent_ =
      std::make_unique<rpc::SilentCalls>(server->generation_->memory());
  return server;
}

OrchestratorServer::OrchestratorServer(const OrchestratorServerOptions& options,
                                       std::unique_ptr<VerifierPool> pool,
                                       metrics::Registry& registry)
    : model_name_(options.model_name),
      pool_(std::move(pool)),
      metrics_(registry),
      principals_(registry),
      spans_exported_(registry.GetCounter(metrics::kTraceSpans, "exported")),
      spans_dropped_(registry.GetCounter(metrics::kTraceSpans, "dropped")),
      streams_("the orchestrator", Unlimited(options), nullptr) {
  // In the order of the contract.
  Serve<GenerateStream>(0);
  Serve<TokenizeStream>(1);
  Serve<DetokenizeStream>(2);
  Serve<ModelInfoStream>(3);
}

OrchestratorServer::~OrchestratorServer() = default;

absl::Status OrchestratorServer::StartTracing(const std::string& endpoint) {
  OtlpOptions options;
  FORETOKEN_ASSIGN_OR_RETURN(options.endpoint, OtlpEndpoint::Parse(endpoint));
  options.service = "foretoken-orchestrator";
  spans_ = std::make_unique<OtlpExporter>(
      std::move(options), [this](bool exported, int64_t spans) {
        (exported ? spans_exported_ : spans_dropped_)
            .Increment(static_cast<double>(spans));
      });
  return absl::OkStatus();
}

PrincipalMetrics::Account& OrchestratorServer::AccountOf(const Caller& caller) {
  // Names of certificates are no closed set, and what stands for a token
  // without a name is nothing for a page that anyone may read.
  return principals_.Of(caller.named ? caller.name : PrincipalMetrics::kOther);
}

template <typename Stream>
void OrchestratorServer::Serve(int index) {
  using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                                      typename Stream::Message>;
  const auto start = [this](grpc::CallbackServerContext* context) {
    Caller caller = rpc::CallerOf(*context, callers_.get());
    PrincipalMetrics::Account& account = AccountOf(caller);
    return streams_.Start<Stream>(
        context,
        CallContext{*generation_, *silent_, gate_, model_name_, account,
                    std::move(caller), rpc::TraceparentOf(*context)});
  };
  // The first makes the method bidirectional; both take a handler.
  MarkMethodStreamed(index, new Handler(start));
  MarkMethodRawCallback(index, new Handler(start));
}

int64_t OrchestratorServer::receive_bytes() const {
  return DivideMemory(generation_->options().memory_budget).receiving;
}

int64_t OrchestratorServer::max_request_bytes() const {
  return MaxWireBytes(generation_->options().max_prompt_bytes);
}

void OrchestratorServer::BeginDrain() {
  generation_->BeginDrain();
  streams_.BeginDrain();  // those that run linger
}

bool OrchestratorServer::Idle() const { return generation_->Idle(); }

void OrchestratorServer::EndAll() { generation_->EndAll(); }

}  // namespace foretoken::orchestrator
