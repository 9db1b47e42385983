// Requests with a pooling: the prompt is read for its embedding.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"
#include "services/orchestrator/core/generation_service.h"

namespace foretoken::orchestrator {
namespace {

absl::Status CheckPrompt(const GenerationRequest& request,
                         const TargetInfo& target) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return absl::InvalidArgumentError("prompt: it is empty");
  FORETOKEN_RETURN_IF_ERROR(
      CheckTokenIds("prompt", request.prompt, target.vocab_size));
  if (length <= target.max_positions) return absl::OkStatus();
  // The words by which the gateway knows it (api_error.cc).
  return absl::InvalidArgumentError(
      absl::StrCat("prompt: it has ", length,
                   " tokens: this model's maximum context length is ",
                   target.max_positions, " tokens"));
}

SessionRequest SessionOf(const GenerationRequest& request,
                         const TargetInfo& target) {
  SessionRequest session;
  session.request_id = request.request_id;
  session.traceparent = request.traceparent;
  session.deadline = request.deadline;
  session.prompt_length = static_cast<int64_t>(request.prompt.size());
  session.max_length = session.prompt_length;
  session.numerics_fingerprint = target.numerics_fingerprint;
  session.caller = request.caller.name;
  session.weight = request.caller.weight;
  session.pooling = request.pooling;
  return session;
}

}  // namespace

absl::StatusOr<GenerationSummary> GenerationService::ReadEmbedding(
    RequestCall& call, GenerationRequest request, Verifier& verifier) {
  FORETOKEN_ASSIGN_OR_RETURN(const TargetInfo target, TargetOf(request));
  FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(target));
  if (target.embedding_size == 0) {
    return absl::UnimplementedError(
        "pooling: the verifiers of this server make no embeddings");
  }
  FORETOKEN_RETURN_IF_ERROR(EncodePrompt(call, target, request));
  FORETOKEN_RETURN_IF_ERROR(CheckPrompt(request, target));
  call.used_tokens = static_cast<int64_t>(request.prompt.size());
  const absl::Time start = clock_();
  FORETOKEN_ASSIGN_OR_RETURN(
      PrefillResult result,
      verifier.Open(SessionOf(request, target), request.prompt));
  if (result.length != static_cast<int64_t>(request.prompt.size()) ||
      static_cast<int64_t>(result.embedding.size()) != target.embedding_size) {
    return absl::InternalError(
        absl::StrCat("the verifier answered ", result.embedding.size(),
                     " numbers after ", result.length, " tokens, want ",
                     target.embedding_size, " after ", request.prompt.size()));
  }
  GenerationSummary summary;
  summary.request_id = std::move(request.request_id);
  summary.finish = result.finish;
  summary.prompt_tokens = result.length;
  summary.verify_time = clock_() - start;
  summary.embedding = std::move(result.embedding);
  return summary;
}

absl::StatusOr<GenerationSummary> GenerationService::DriveEmbedding(
    RequestCall& call, GenerationRequest request) {
  if (call.trace != nullptr) call.trace->OnStart(clock_());
  const std::unique_ptr<Verifier> verifier = target_->NewVerifier();
  call.SetVerifier(verifier.get());
  absl::StatusOr<GenerationSummary> summary =
      ReadEmbedding(call, std::move(request), *verifier);
  call.SetVerifier(nullptr);
  verifier->Close();
  observer_.OnFailovers(verifier->failovers());
  FORETOKEN_RETURN_IF_ERROR(summary.status());
  const absl::Time now = clock_();
  observer_.OnEmbedding(*summary);
  if (call.trace != nullptr) call.trace->OnPrefill(*summary, now);
  summary->total_time = now - call.arrived;
  return summary;
}

}  // namespace foretoken::orchestrator
