#include "services/orchestrator/server.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "services/orchestrator/adapters/generate_stream.h"
#include "services/orchestrator/core/modes.h"

namespace foretoken::orchestrator {
namespace {

constexpr size_t kMaxRequestIdLength = 64;
constexpr size_t kMaxCacheScopeLength = 256;

uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

absl::Status CheckNames(const v1::GenerateRequest& request) {
  bool good = request.request_id().size() <= kMaxRequestIdLength;
  for (const char c : request.request_id()) {
    good &= absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  }
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("request_id: want at most ", kMaxRequestIdLength,
                     " characters of A-Za-z0-9._-"));
  }
  if (request.cache_scope().size() > kMaxCacheScopeLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache_scope: ", request.cache_scope().size(),
                     " bytes, want at most ", kMaxCacheScopeLength));
  }
  return absl::OkStatus();
}

v1::Drafter DrafterNumber(const std::string& name) {
  v1::Drafter drafter = v1::DRAFTER_UNSPECIFIED;
  v1::Drafter_Parse(absl::StrCat("DRAFTER_", absl::AsciiStrToUpper(name)),
                    &drafter);
  return drafter;
}

void FillDelta(const Delta& delta, const GenerationSummary& summary,
               v1::GenerateDelta* proto) {
  proto->set_text(delta.text);
  proto->mutable_token_ids()->Add(delta.token_ids.begin(),
                                  delta.token_ids.end());
  for (const int32_t drafter : delta.drafters) {
    proto->add_drafters(drafter < 0
                            ? v1::DRAFTER_UNSPECIFIED
                            : DrafterNumber(summary.by_drafter[drafter].name));
  }
  for (const SampledToken& token : delta.logprobs) {
    rpc::ToProto(token, proto->add_logprobs());
  }
}

void FillResult(const GenerationSummary& summary, v1::GenerateResult* result) {
  result->set_finish_reason(rpc::ToProto(summary.finish));
  v1::Usage* usage = result->mutable_usage();
  usage->set_prompt_tokens(static_cast<int32_t>(summary.prompt_tokens));
  usage->set_completion_tokens(static_cast<int32_t>(summary.completion_tokens));
  usage->set_cached_prompt_tokens(static_cast<int32_t>(summary.reused_tokens));
  v1::SpeculationStats* stats = result->mutable_speculation();
  stats->set_rounds(summary.rounds);
  stats->set_drafted_tokens(summary.drafted);
  stats->set_accepted_tokens(summary.accepted);
  stats->set_accept_length(summary.accept_length());
  for (const DrafterCounts& counts : summary.by_drafter) {
    v1::DrafterStats* by = stats->add_by_drafter();
    by->set_drafter(DrafterNumber(counts.name));
    by->set_drafted_tokens(counts.drafted);
    by->set_accepted_tokens(counts.accepted);
    by->set_rounds(summary.rounds);
  }
  v1::Timing* timing = result->mutable_timing();
  timing->set_time_to_first_token_ms(
      absl::ToDoubleMilliseconds(summary.time_to_first_token));
  const double seconds = absl::ToDoubleSeconds(summary.decode_time);
  if (seconds > 0) {
    timing->set_decode_tokens_per_s(
        static_cast<double>(summary.decoded_tokens) / seconds);
  }
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
  FORETOKEN_ASSIGN_OR_RETURN(ModeSpec mode,
                             ModeSpec::Parse(options.default_mode));
  FORETOKEN_RETURN_IF_ERROR(MakeDrafters(mode).status());
  return std::unique_ptr<OrchestratorServer>(
      new OrchestratorServer(options, std::move(mode), std::move(pool),
                             std::move(tokenizer), registry));
}

OrchestratorServer::OrchestratorServer(const OrchestratorServerOptions& options,
                                       ModeSpec mode,
                                       std::unique_ptr<VerifierPool> pool,
                                       std::unique_ptr<Tokenizer> tokenizer,
                                       metrics::Registry& registry)
    : options_(options),
      default_mode_(std::move(mode)),
      pool_(std::move(pool)),
      tokenizer_(std::move(tokenizer)),
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

absl::StatusOr<TargetInfo> OrchestratorServer::Target() const {
  FORETOKEN_ASSIGN_OR_RETURN(const v1::GetVerifierInfoResponse info,
                             pool_->Info());
  if (tokenizer_ != nullptr && !info.tokenizer_fingerprint().empty()) {
    const Sha256Digest& ours = tokenizer_->fingerprint();
    if (!std::equal(
            ours.begin(), ours.end(), info.tokenizer_fingerprint().begin(),
            info.tokenizer_fingerprint().end(),
            [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); })) {
      return absl::FailedPreconditionError(
          "the verifiers' model has another tokenizer than this orchestrator");
    }
  }
  TargetInfo target;
  target.vocab_size = info.vocab_size();
  target.max_positions = info.max_positions();
  target.eos_tokens.assign(info.end_tokens().begin(), info.end_tokens().end());
  return target;
}

absl::StatusOr<std::vector<TokenId>> OrchestratorServer::PromptOf(
    const v1::GenerateRequest& request) const {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kTokenIds:
      return std::vector<TokenId>(request.token_ids().ids().begin(),
                                  request.token_ids().ids().end());
    case v1::GenerateRequest::kText:
      if (tokenizer_ == nullptr) {
        return absl::InvalidArgumentError(
            "text: this server has no tokenizer, want token_ids");
      }
      if (static_cast<int64_t>(request.text().size()) >
          options_.max_prompt_bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("text: ", request.text().size(),
                         " bytes, want at most ", options_.max_prompt_bytes));
      }
      return tokenizer_->EncodePrompt(request.text());
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("prompt: want text or token_ids");
}

absl::StatusOr<ModeSpec> OrchestratorServer::ModeOf(
    const v1::SpeculationConfig& config) const {
  FORETOKEN_ASSIGN_OR_RETURN(ModeSpec mode, rpc::FromProto(config));
  if (mode.name().empty()) return default_mode_;
  return mode;
}

absl::StatusOr<std::unique_ptr<DecodeLoop>> OrchestratorServer::MakeLoop(
    const v1::GenerateRequest& request, uint64_t seed, absl::Time deadline,
    std::string* mode_text) const {
  FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec mode,
                             ModeOf(request.speculation()));
  *mode_text = mode.ToString();
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<NamedDrafter> drafters,
                             MakeDrafters(mode));
  FORETOKEN_ASSIGN_OR_RETURN(const TargetInfo target, Target());
  GenerationRequest generation;
  FORETOKEN_ASSIGN_OR_RETURN(generation.prompt, PromptOf(request));
  FORETOKEN_ASSIGN_OR_RETURN(generation.sampling,
                             rpc::FromProto(request.sampling()));
  generation.sampling.seed = seed;
  if (request.has_max_tokens()) generation.max_tokens = request.max_tokens();
  generation.stop_token_ids.assign(request.stop_token_ids().begin(),
                                   request.stop_token_ids().end());
  generation.stop_strings.assign(request.stop().begin(), request.stop().end());
  generation.ignore_eos = request.ignore_eos();
  generation.cache_scope = request.cache_scope();
  generation.deadline = deadline;
  DecodeLoop::Options loop;
  loop.max_tree_nodes = options_.max_tree_nodes;
  if (request.speculation().has_max_tree_nodes()) {
    const int32_t asked = request.speculation().max_tree_nodes();
    if (asked < 1 || asked > options_.max_tree_nodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("speculation.max_tree_nodes: ", asked, ", want 1..",
                       options_.max_tree_nodes));
    }
    loop.max_tree_nodes = asked;
  }
  return DecodeLoop::Create(std::move(generation), target, tokenizer_.get(),
                            std::move(drafters), std::move(loop));
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
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<DecodeLoop> loop,
      MakeLoop(call.request, seed, call.deadline, &mode));
  const auto show = [&](const Delta& delta) {
    if (delta.text.empty() && delta.token_ids.empty()) return absl::OkStatus();
    v1::GenerateResponse response;
    FillDelta(delta, loop->summary(), response.mutable_delta());
    return call.stream->Send(std::move(response));
  };
  const SessionRequest open = loop->OpenRequest();
  FORETOKEN_ASSIGN_OR_RETURN(const PrefillResult prefill, verifier.Open(open));
  Delta delta;
  FORETOKEN_RETURN_IF_ERROR(loop->OnPrefill(prefill, delta));
  metrics_.Prefilled(loop->summary());
  FORETOKEN_RETURN_IF_ERROR(show(delta));
  absl::Duration draft_time, verify_time;
  while (!loop->done()) {
    const GenerationSummary before = loop->summary();
    const absl::Time start = absl::Now();
    RoundRequest request = loop->NextRound();
    const int nodes = request.tree.size();
    const absl::Time drafted = absl::Now();
    FORETOKEN_ASSIGN_OR_RETURN(const RoundResult round,
                               verifier.Round(std::move(request)));
    const absl::Time verified = absl::Now();
    delta = Delta();
    FORETOKEN_RETURN_IF_ERROR(loop->OnRound(round, delta));
    metrics_.RoundDone(nodes, round, drafted - start, verified - drafted,
                       before, loop->summary());
    draft_time += drafted - start;
    verify_time += verified - drafted;
    FORETOKEN_RETURN_IF_ERROR(show(delta));
  }
  FillResult(loop->summary(), &result);
  result.mutable_speculation()->set_mode(mode);
  result.set_seed(seed);
  result.set_request_id(call.request_id);
  result.mutable_prompt_token_ids()->Add(open.tokens.begin(),
                                         open.tokens.end());
  v1::Timing& timing = *result.mutable_timing();
  timing.set_draft_ms(absl::ToDoubleMilliseconds(draft_time));
  timing.set_verify_ms(absl::ToDoubleMilliseconds(verify_time));
  timing.set_total_ms(absl::ToDoubleMilliseconds(absl::Now() - call.start));
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
    for (const std::string& mode : ServedModes()) response->add_modes(mode);
    response->set_numerics_fingerprint(info->numerics_fingerprint());
    if (tokenizer_ != nullptr) {
      const Sha256Digest& digest = tokenizer_->fingerprint();
      response->set_tokenizer_fingerprint(digest.data(), digest.size());
    }
    response->set_max_tree_nodes(options_.max_tree_nodes);
    // A default that no message can carry was refused at start.
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
