#include "services/orchestrator/server.h"

#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "services/orchestrator/adapters/generate_stream.h"
#include "services/orchestrator/adapters/request_reading.h"
#include "services/orchestrator/core/modes.h"
#include "services/orchestrator/core/trace.h"

namespace foretoken::orchestrator {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

// One Generate call between its arrival and its end.
class OrchestratorServer::Call {
 public:
  std::shared_ptr<GenerateStream> stream;
  v1::GenerateRequest request;
  std::string request_id;
  absl::Time start;
  absl::Time deadline;

  // Ends the call with `status` as soon as it looks.
  void Abort(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    aborted_ = status;
    if (verifier_ != nullptr) verifier_->Cancel();
  }
  // The verifier that a cancel has to reach; nullptr: none any more.
  void SetVerifier(RemoteVerifier* verifier) {
    {
      absl::MutexLock lock(&mu_);
      verifier_ = verifier;
      if (verifier != nullptr && !aborted_.ok()) verifier->Cancel();
    }
    if (verifier == nullptr) {
      stream->SetCancelAction(nullptr);
    } else {
      stream->SetCancelAction([verifier] { verifier->Cancel(); });
    }
  }
  // Why it really ended.
  absl::Status Reason(absl::Status status) const {
    absl::MutexLock lock(&mu_);
    if (status.ok()) return status;
    if (!aborted_.ok()) return aborted_;
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError("the request's deadline has passed");
    }
    return status;
  }

 private:
  mutable absl::Mutex mu_;
  RemoteVerifier* verifier_ ABSL_GUARDED_BY(mu_) = nullptr;
  absl::Status aborted_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<OrchestratorServer>> OrchestratorServer::Create(
    const OrchestratorServerOptions& options,
    std::unique_ptr<VerifierPool> pool, std::unique_ptr<Tokenizer> tokenizer,
    metrics::Registry& registry) {
  FORETOKEN_ASSIGN_OR_RETURN(Mode mode, Mode::Parse(options.default_mode));
  std::string fingerprint;
  if (tokenizer != nullptr) {
    const Sha256Digest& digest = tokenizer->fingerprint();
    fingerprint.assign(digest.begin(), digest.end());
  }
  auto drafters = std::make_unique<RemoteServices>(
      options.drafters, std::move(fingerprint), registry);
  ModeContext context;
  context.services = drafters.get();
  FORETOKEN_RETURN_IF_ERROR(MakeSources(mode, context).status());
  return std::unique_ptr<OrchestratorServer>(
      new OrchestratorServer(options, std::move(mode), std::move(drafters),
                             std::move(pool), std::move(tokenizer), registry));
}

OrchestratorServer::OrchestratorServer(const OrchestratorServerOptions& options,
                                       Mode mode,
                                       std::unique_ptr<RemoteServices> drafters,
                                       std::unique_ptr<VerifierPool> pool,
                                       std::unique_ptr<Tokenizer> tokenizer,
                                       metrics::Registry& registry)
    : options_(options),
      default_mode_(std::move(mode)),
      pool_(std::move(pool)),
      tokenizer_(std::move(tokenizer)),
      drafters_(std::move(drafters)),
      estimates_(std::make_shared<DraftEstimates>()),
      metrics_(registry),
      workers_(options.max_requests, options.max_waiting_requests) {}

OrchestratorServer::~OrchestratorServer() = default;

absl::Status OrchestratorServer::Enter(Call* call) {
  absl::MutexLock lock(&mu_);
  if (draining_) return absl::UnavailableError("the orchestrator is draining");
  calls_.insert(call);
  return absl::OkStatus();
}

void OrchestratorServer::Leave(Call* call) {
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
}

absl::Status OrchestratorServer::Submit(std::function<void()> work) {
  const absl::Status submitted = workers_.Submit(std::move(work));
  if (!absl::IsResourceExhausted(submitted)) return submitted;
  return rpc::WithRetryAfter(submitted, options_.retry_after);
}

absl::StatusOr<Mode> OrchestratorServer::ModeOf(
    const v1::SpeculationConfig& config) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<Mode> mode,
                             rpc::FromProto(config));
  return mode.value_or(default_mode_);
}

absl::StatusOr<std::unique_ptr<DecodeLoop>> OrchestratorServer::MakeLoop(
    const Call& call, uint64_t seed, std::string* mode_text) const {
  const v1::GenerateRequest& request = call.request;
  FORETOKEN_ASSIGN_OR_RETURN(const Mode mode, ModeOf(request.speculation()));
  *mode_text = mode.ToString();
  DraftingOptions drafting;
  FORETOKEN_ASSIGN_OR_RETURN(
      drafting.limits.max_draft_nodes,
      ReadTreeNodes(request.speculation(), options_.max_tree_nodes));
  FORETOKEN_ASSIGN_OR_RETURN(const v1::GetVerifierInfoResponse info,
                             pool_->Info());
  drafting.limits.max_rows = info.max_rows_per_session();
  drafting.costs = ReadPassCosts(info);
  drafting.estimates = estimates_;
  drafting.wait = options_.draft_wait;
  FORETOKEN_ASSIGN_OR_RETURN(
      ModeSources made,
      MakeSources(mode, {drafters_.get(), drafting.limits, drafting.clock}));
  drafting.economical = made.economical;

  FORETOKEN_ASSIGN_OR_RETURN(const TargetInfo target,
                             ReadTarget(info, tokenizer_.get()));
  FORETOKEN_ASSIGN_OR_RETURN(GenerationRequest generation,
                             ReadRequest(request));
  FORETOKEN_ASSIGN_OR_RETURN(
      generation.prompt,
      ReadPrompt(request, tokenizer_.get(), options_.max_prompt_bytes));
  generation.sampling.seed = seed;
  generation.request_id = call.request_id;
  generation.deadline = call.deadline;
  return DecodeLoop::Create(std::move(generation), target, tokenizer_.get(),
                            std::move(made.sources), std::move(drafting));
}

grpc::ServerWriteReactor<v1::GenerateResponse>* OrchestratorServer::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  auto call = std::make_shared<Call>();
  call->stream = GenerateStream::Create();
  call->request = *request;
  call->start = absl::Now();
  call->deadline = rpc::DeadlineOf(context->deadline());
  call->request_id = request->request_id().empty()
                         ? absl::StrFormat("%016x", RandomSeed())
                         : request->request_id();
  GenerateStream* const reactor = call->stream.get();
  metrics_.RequestStarted();
  absl::Status status = CheckNames(*request);
  if (status.ok()) status = Enter(call.get());
  if (status.ok()) {
    status = Submit([this, call] { Run(*call); });
    if (!status.ok()) Leave(call.get());
  }
  if (!status.ok()) {
    metrics_.RequestEnded(status.code(), absl::Now() - call->start);
    call->stream->End(status);
  }
  return reactor;
}

void OrchestratorServer::Run(Call& call) {
  const uint64_t seed = call.request.sampling().has_seed()
                            ? call.request.sampling().seed()
                            : RandomSeed();
  RemoteVerifier verifier(options_.verifier, *pool_, call.request_id);
  call.SetVerifier(&verifier);
  v1::GenerateResponse last;
  const absl::Status driven =
      Drive(call, seed, verifier, *last.mutable_result());
  call.SetVerifier(nullptr);
  verifier.Close();
  metrics_.Failovers(verifier.failovers());

  absl::Status status = driven;
  if (status.ok()) status = call.stream->Send(std::move(last));
  status = call.Reason(std::move(status));
  if (absl::IsResourceExhausted(status) &&
      !rpc::RetryAfter(status).has_value()) {
    status = rpc::WithRetryAfter(std::move(status), options_.retry_after);
  }
  const absl::Duration took = absl::Now() - call.start;
  metrics_.RequestEnded(status.code(), took);
  if (!status.ok()) {
    FORETOKEN_LOG(kInfo, "request ", call.request_id, " ended after ",
                  absl::FormatDuration(took), ": ", status.ToString());
  }
  Leave(&call);
  call.stream->End(status);
}

absl::Status OrchestratorServer::Drive(Call& call, uint64_t seed,
                                       RemoteVerifier& verifier,
                                       v1::GenerateResult& result) {
  std::string mode;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<DecodeLoop> loop,
                             MakeLoop(call, seed, &mode));
  const auto show = [&](const Delta& delta) {
    if (delta.text.empty() && delta.token_ids.empty()) return absl::OkStatus();
    v1::GenerateResponse response;
    FillDelta(delta, response.mutable_delta());
    return call.stream->Send(std::move(response));
  };
  const SessionRequest open = loop->OpenRequest();
  verifier.WantRowTokens(loop->needs_rows());
  FORETOKEN_ASSIGN_OR_RETURN(const PrefillResult prefill, verifier.Open(open));
  Delta delta;
  FORETOKEN_RETURN_IF_ERROR(loop->OnPrefill(prefill, delta));
  metrics_.Prefilled(loop->summary());
  FORETOKEN_RETURN_IF_ERROR(show(delta));
  while (!loop->done()) {
    FORETOKEN_ASSIGN_OR_RETURN(const RoundResult round,
                               verifier.Round(loop->NextRound()));
    delta = Delta();
    FORETOKEN_RETURN_IF_ERROR(loop->OnRound(round, delta));
    metrics_.RoundDone(loop->last_round());
    if (options_.trace) {
      FORETOKEN_LOG(kInfo, "trace ", call.request_id, " ",
                    TraceLine(loop->summary().rounds, loop->last_round()));
    }
    FORETOKEN_RETURN_IF_ERROR(show(delta));
  }
  FillResult(loop->summary(), &result);
  result.mutable_speculation()->set_mode(mode);
  result.set_seed(seed);
  result.set_request_id(call.request_id);
  result.mutable_prompt_token_ids()->Add(open.tokens.begin(),
                                         open.tokens.end());
  result.mutable_timing()->set_total_ms(
      absl::ToDoubleMilliseconds(absl::Now() - call.start));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* OrchestratorServer::Tokenize(
    grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
    v1::TokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status submitted = Submit([this, reactor, request, response] {
    absl::Status status;
    if (tokenizer_ == nullptr) {
      status = absl::FailedPreconditionError("this server has no tokenizer");
    } else if (static_cast<int64_t>(request->text().size()) >
               options_.max_prompt_bytes) {
      status = absl::InvalidArgumentError(
          absl::StrCat("text: ", request->text().size(),
                       " bytes, want at most ", options_.max_prompt_bytes));
    } else {
      const std::vector<TokenId> ids =
          request->add_special_tokens()
              ? tokenizer_->EncodePrompt(request->text())
              : tokenizer_->Encode(request->text());
      response->mutable_token_ids()->Add(ids.begin(), ids.end());
    }
    reactor->Finish(rpc::ToGrpcStatus(status));
  });
  if (!submitted.ok()) reactor->Finish(rpc::ToGrpcStatus(submitted));
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorServer::Detokenize(
    grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
    v1::DetokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status submitted = Submit([this, reactor, request, response] {
    absl::Status status =
        absl::FailedPreconditionError("this server has no tokenizer");
    if (tokenizer_ != nullptr) {
      absl::StatusOr<std::string> text =
          tokenizer_->Decode({request->token_ids().data(),
                              static_cast<size_t>(request->token_ids_size())});
      status = text.status();
      if (text.ok()) response->set_text(*std::move(text));
    }
    reactor->Finish(rpc::ToGrpcStatus(status));
  });
  if (!submitted.ok()) reactor->Finish(rpc::ToGrpcStatus(submitted));
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorServer::GetModelInfo(
    grpc::CallbackServerContext* context, const v1::GetModelInfoRequest*,
    v1::GetModelInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<v1::GetVerifierInfoResponse> info = pool_->Info();
  if (info.ok()) {
    response->set_model(options_.model_name);
    response->set_vocab_size(info->vocab_size());
    response->set_max_positions(info->max_positions());
    for (std::string& mode : ServedModes(drafters_.get())) {
      response->add_modes(std::move(mode));
    }
    response->set_numerics_fingerprint(info->numerics_fingerprint());
    if (tokenizer_ != nullptr) {
      const Sha256Digest& digest = tokenizer_->fingerprint();
      response->set_tokenizer_fingerprint(digest.data(), digest.size());
    }
    response->set_max_tree_nodes(options_.max_tree_nodes);
    rpc::ToProto(default_mode_, response->mutable_default_speculation())
        .IgnoreError();
  }
  reactor->Finish(rpc::ToGrpcStatus(info.status()));
  return reactor;
}

void OrchestratorServer::BeginDrain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

bool OrchestratorServer::Idle() const { return workers_.active() == 0; }

void OrchestratorServer::EndAll() {
  absl::MutexLock lock(&mu_);
  for (Call* call : calls_) {
    call->Abort(absl::UnavailableError("the orchestrator is stopping"));
  }
}

}  // namespace foretoken::orchestrator
