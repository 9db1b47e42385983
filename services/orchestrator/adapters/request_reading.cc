#include "services/orchestrator/adapters/request_reading.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"

namespace foretoken::orchestrator {
namespace {

constexpr size_t kMaxRequestIdLength = 64;
constexpr size_t kMaxCacheScopeLength = 256;

}  // namespace

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

absl::StatusOr<std::vector<TokenId>> ReadPrompt(
    const v1::GenerateRequest& request, const Tokenizer* tokenizer,
    int64_t max_prompt_bytes) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kTokenIds:
      return std::vector<TokenId>(request.token_ids().ids().begin(),
                                  request.token_ids().ids().end());
    case v1::GenerateRequest::kText:
      if (tokenizer == nullptr) {
        return absl::InvalidArgumentError(
            "text: this server has no tokenizer, want token_ids");
      }
      if (static_cast<int64_t>(request.text().size()) > max_prompt_bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("text: ", request.text().size(),
                         " bytes, want at most ", max_prompt_bytes));
      }
      return tokenizer->EncodePrompt(request.text());
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("prompt: want text or token_ids");
}

absl::StatusOr<GenerationRequest> ReadRequest(
    const v1::GenerateRequest& request) {
  GenerationRequest generation;
  FORETOKEN_ASSIGN_OR_RETURN(generation.sampling,
                             rpc::FromProto(request.sampling()));
  if (request.has_max_tokens()) generation.max_tokens = request.max_tokens();
  generation.stop_token_ids.assign(request.stop_token_ids().begin(),
                                   request.stop_token_ids().end());
  generation.stop_strings.assign(request.stop().begin(), request.stop().end());
  generation.ignore_eos = request.ignore_eos();
  generation.cache_scope = request.cache_scope();
  return generation;
}

absl::StatusOr<int32_t> ReadTreeNodes(const v1::SpeculationConfig& config,
                                      int32_t limit) {
  if (!config.has_max_tree_nodes()) return limit;
  const int32_t asked = config.max_tree_nodes();
  if (asked >= 1 && asked <= limit) return asked;
  return absl::InvalidArgumentError(
      absl::StrCat("speculation.max_tree_nodes: ", asked, ", want 1..", limit));
}

absl::StatusOr<TargetInfo> ReadTarget(const v1::GetVerifierInfoResponse& info,
                                      const Tokenizer* tokenizer) {
  if (tokenizer != nullptr && !info.tokenizer_fingerprint().empty()) {
    const Sha256Digest& ours = tokenizer->fingerprint();
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

PassCosts ReadPassCosts(const v1::GetVerifierInfoResponse& info) {
  std::vector<std::pair<int32_t, double>> costs;
  for (const v1::PassCost& cost : info.pass_costs()) {
    costs.emplace_back(cost.rows(), cost.milliseconds());
  }
  return PassCosts(std::move(costs));
}

void FillDelta(const Delta& delta, v1::GenerateDelta* proto) {
  proto->set_text(delta.text);
  proto->mutable_token_ids()->Add(delta.token_ids.begin(),
                                  delta.token_ids.end());
  for (const DrafterId drafter : delta.drafters) {
    proto->add_drafters(rpc::ToProto(drafter));
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
    by->set_drafter(rpc::ToProto(counts.id));
    by->set_drafted_tokens(counts.drafted);
    by->set_accepted_tokens(counts.accepted);
    by->set_rounds(counts.rounds);
    by->set_degraded_rounds(counts.degraded);
  }
  v1::Timing* timing = result->mutable_timing();
  timing->set_time_to_first_token_ms(
      absl::ToDoubleMilliseconds(summary.time_to_first_token));
  timing->set_draft_ms(absl::ToDoubleMilliseconds(summary.draft_time));
  timing->set_verify_ms(absl::ToDoubleMilliseconds(summary.verify_time));
  const double seconds = absl::ToDoubleSeconds(summary.decode_time);
  if (seconds > 0) {
    timing->set_decode_tokens_per_s(
        static_cast<double>(summary.decoded_tokens) / seconds);
  }
}

}  // namespace foretoken::orchestrator
