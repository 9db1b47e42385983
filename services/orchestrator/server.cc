#include "services/orchestrator/server.h"

#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_generation.h"
#include "common/rpc/status.h"

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

// One Generate call. A slow reader delays only its own request; a cancelled
// call cancels its request.
class GenerateStream final : public rpc::WriteStream<v1::GenerateResponse>,
                             public GenerationSink {
 public:
  GenerateStream(rpc::StreamServer& server, GenerationService& generation,
                 PrincipalMetrics::Account& account,
                 absl::StatusOr<GenerationRequest> request)
      : WriteStream(server),
        generation_(generation),
        account_(account),
        request_(std::move(request)) {}

  absl::Status OnDelta(const GenerationDelta& delta) override {
    account_.OnGeneratedTokens(static_cast<int64_t>(delta.token_ids.size()));
    v1::GenerateResponse response;
    rpc::ToProto(delta, response.mutable_delta());
    return SendWhenRoom(std::move(response));
  }
  absl::Status OnResult(const GenerationSummary& summary) override {
    account_.OnPromptTokens(summary.prompt_tokens);
    v1::GenerateResponse response;
    rpc::ToProto(summary, response.mutable_result());
    return SendWhenRoom(std::move(response));
  }
  void OnEnd(const absl::Status& status) override {
    account_.OnEnd(status.code());
    // The finished call may drop the last other reference.
    const auto self = shared_from_this();
    absl::MutexLock lock(&mu_);
    running_ = false;
    EndAfterSends(server_.WithRetryHint(status));
    Continue();
  }

 private:
  // Messages that may wait for a slow reader.
  static constexpr size_t kMaxWaiting = 64;

  void OnStart() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    running_ = true;
    mu_.Unlock();  // a refused request ends inside Start
    auto call = generation_.Start(std::move(request_), *this);
    mu_.Lock();
    call_ = std::move(call);
    if (ended()) CancelCall();  // ended while there was nothing to cancel
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
      return ended() || unsent() < kMaxWaiting;
    };
    mu_.Await(absl::Condition(&room));
    if (ended()) return absl::CancelledError("the client is gone");
    Send(std::move(response));
    return absl::OkStatus();
  }

  GenerationService& generation_;
  PrincipalMetrics::Account& account_;
  absl::StatusOr<GenerationRequest> request_;
  std::shared_ptr<GenerationService::Call> call_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
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
  FORETOKEN_ASSIGN_OR_RETURN(
      server->generation_,
      GenerationService::Create(
          generation,
          std::make_unique<RemoteTarget>(options.verifier, *server->pool_),
          std::make_unique<DraftServices>(options.drafters, fingerprint,
                                          breaker_gauge),
          std::move(tokenizer), server->metrics_));
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
      streams_("the orchestrator", Unlimited(options), nullptr) {}

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

grpc::ServerWriteReactor<v1::GenerateResponse>* OrchestratorServer::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  absl::StatusOr<GenerationRequest> generation = rpc::FromProto(*request);
  Caller caller = rpc::CallerOf(*context, callers_.get());
  // Names of certificates are no closed set.
  PrincipalMetrics::Account& account = principals_.Of(
      callers_ != nullptr && caller.authenticated ? caller.name
                                                  : PrincipalMetrics::kOther);
  if (generation.ok()) {
    generation->caller = std::move(caller);
    generation->deadline = rpc::DeadlineOf(context->deadline());
    generation->traceparent = rpc::TraceparentOf(*context);
  }
  // gRPC keeps the message as long as the call, which is its only user: the
  // converted prompt need not stay in it.
  const_cast<v1::GenerateRequest*>(request)->clear_prompt();
  return streams_.Start<GenerateStream>(context, *generation_, account,
                                        std::move(generation));
}

grpc::ServerUnaryReactor* OrchestratorServer::Run(
    grpc::CallbackServerContext* context, absl::string_view field, size_t bytes,
    std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  generation_->RunTextWork(
      rpc::CallerOf(*context, callers_.get()), field, bytes,
      rpc::DeadlineOf(context->deadline()),
      [this, reactor, work = std::move(work)](const absl::Status& admitted) {
        reactor->Finish(rpc::ToGrpcStatus(
            admitted.ok() ? work() : streams_.WithRetryHint(admitted)));
      });
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorServer::Tokenize(
    grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
    v1::TokenizeResponse* response) {
  const auto work = [this, request, response]() -> absl::Status {
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::vector<TokenId> ids,
        generation_->Tokenize(request->text(), request->add_special_tokens()));
    response->mutable_token_ids()->Add(ids.begin(), ids.end());
    return absl::OkStatus();
  };
  return Run(context, "text", request->text().size(), work);
}

grpc::ServerUnaryReactor* OrchestratorServer::Detokenize(
    grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
    v1::DetokenizeResponse* response) {
  const auto count = static_cast<size_t>(request->token_ids_size());
  const auto work = [this, request, response, count]() -> absl::Status {
    FORETOKEN_ASSIGN_OR_RETURN(
        *response->mutable_text(),
        generation_->Detokenize({request->token_ids().data(), count}));
    return absl::OkStatus();
  };
  return Run(context, "token_ids", count * sizeof(TokenId), work);
}

grpc::ServerUnaryReactor* OrchestratorServer::GetModelInfo(
    grpc::CallbackServerContext* context, const v1::GetModelInfoRequest*,
    v1::GetModelInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<TargetInfo> info = generation_->Info();
  if (info.ok()) {
    response->set_model(model_name_);
    response->set_vocab_size(info->vocab_size);
    response->set_max_positions(static_cast<int32_t>(info->max_positions));
    for (std::string& mode : generation_->modes()) {
      response->add_modes(std::move(mode));
    }
    response->set_numerics_fingerprint(info->numerics_fingerprint);
    if (const Tokenizer* tokenizer = generation_->tokenizer()) {
      response->set_tokenizer_fingerprint(tokenizer->fingerprint_bytes());
    }
    response->set_max_tree_nodes(generation_->options().max_tree_nodes);
    rpc::ToProto(generation_->default_mode(),
                 response->mutable_default_speculation())
        .IgnoreError();  // a mode of requests has its message
  }
  reactor->Finish(rpc::ToGrpcStatus(info.status()));
  return reactor;
}

void OrchestratorServer::BeginDrain() { generation_->BeginDrain(); }

bool OrchestratorServer::Idle() const { return generation_->Idle(); }

void OrchestratorServer::EndAll() { generation_->EndAll(); }

}  // namespace foretoken::orchestrator
