#include "services/orchestrator/server.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_generation.h"
#include "common/rpc/status.h"
#include "services/orchestrator/adapters/generate_stream.h"

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

// The sink of one Generate call; deletes itself at its end.
class StreamSink final : public GenerationSink {
 public:
  using WithHint = std::function<absl::Status(absl::Status)>;

  StreamSink(std::shared_ptr<GenerateStream> stream, WithHint with_hint)
      : stream_(std::move(stream)), with_hint_(std::move(with_hint)) {}

  absl::Status OnDelta(const GenerationDelta& delta) override {
    v1::GenerateResponse response;
    rpc::ToProto(delta, response.mutable_delta());
    return stream_->Send(std::move(response));
  }
  absl::Status OnResult(const GenerationSummary& summary) override {
    v1::GenerateResponse response;
    rpc::ToProto(summary, response.mutable_result());
    return stream_->Send(std::move(response));
  }
  void OnEnd(const absl::Status& status) override {
    stream_->SetCancelAction(nullptr);
    stream_->End(with_hint_(status));
    delete this;
  }

 private:
  const std::shared_ptr<GenerateStream> stream_;
  const WithHint with_hint_;
};

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
  FORETOKEN_ASSIGN_OR_RETURN(
      server->generation_,
      GenerationService::Create(
          options,
          std::make_unique<RemoteTarget>(options.verifier, *server->pool_),
          std::make_unique<SessionServices>(options.drafters, fingerprint,
                                            breaker_gauge),
          std::move(tokenizer), server->metrics_));
  return server;
}

OrchestratorServer::OrchestratorServer(const OrchestratorServerOptions& options,
                                       std::unique_ptr<VerifierPool> pool,
                                       metrics::Registry& registry)
    : model_name_(options.model_name),
      retry_after_(options.retry_after),
      pool_(std::move(pool)),
      metrics_(registry) {}

OrchestratorServer::~OrchestratorServer() = default;

absl::Status OrchestratorServer::WithHint(absl::Status status) const {
  if (!absl::IsResourceExhausted(status) ||
      rpc::RetryAfter(status).has_value()) {
    return status;
  }
  return rpc::WithRetryAfter(std::move(status), retry_after_);
}

grpc::ServerWriteReactor<v1::GenerateResponse>* OrchestratorServer::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  const std::shared_ptr<GenerateStream> stream = GenerateStream::Create();
  absl::StatusOr<GenerationRequest> generation = rpc::FromProto(*request);
  if (generation.ok()) {
    generation->deadline = rpc::DeadlineOf(context->deadline());
  }
  auto* sink = new StreamSink(
      stream, [this](absl::Status s) { return WithHint(std::move(s)); });
  stream->SetCancelAction(
      [call = generation_->Start(std::move(generation), *sink)] {
        call->Cancel();
      });
  return stream.get();
}

grpc::ServerUnaryReactor* OrchestratorServer::Run(
    grpc::CallbackServerContext* context, std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status submitted =
      generation_->Submit([reactor, work = std::move(work)] {
        reactor->Finish(rpc::ToGrpcStatus(work()));
      });
  if (!submitted.ok()) {
    reactor->Finish(rpc::ToGrpcStatus(WithHint(submitted)));
  }
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorServer::Tokenize(
    grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
    v1::TokenizeResponse* response) {
  return Run(context, [this, request, response]() -> absl::Status {
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::vector<TokenId> ids,
        generation_->Tokenize(request->text(), request->add_special_tokens()));
    response->mutable_token_ids()->Add(ids.begin(), ids.end());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* OrchestratorServer::Detokenize(
    grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
    v1::DetokenizeResponse* response) {
  return Run(context, [this, request, response]() -> absl::Status {
    FORETOKEN_ASSIGN_OR_RETURN(
        *response->mutable_text(),
        generation_->Detokenize(
            {request->token_ids().data(),
             static_cast<size_t>(request->token_ids_size())}));
    return absl::OkStatus();
  });
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
