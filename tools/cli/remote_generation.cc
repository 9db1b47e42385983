#include "tools/cli/remote_generation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"

namespace foretoken::cli {
namespace {

absl::StatusOr<v1::GenerateRequest> ToMessage(
    const std::optional<std::string>& text,
    const orchestrator::GenerationRequest& request, bool has_seed,
    const Mode& mode) {
  v1::GenerateRequest message;
  if (text.has_value()) {
    message.set_text(*text);
  } else {
    message.mutable_token_ids()->mutable_ids()->Add(request.prompt.begin(),
                                                    request.prompt.end());
  }
  rpc::ToProto(request.sampling, message.mutable_sampling());
  if (!has_seed) message.mutable_sampling()->clear_seed();
  FORETOKEN_RETURN_IF_ERROR(rpc::ToProto(mode, message.mutable_speculation()));
  // Any number beyond the message's is beyond every model's context, too.
  message.set_max_tokens(static_cast<int32_t>(std::clamp<int64_t>(
      request.max_tokens, std::numeric_limits<int32_t>::min(),
      std::numeric_limits<int32_t>::max())));
  for (const std::string& stop : request.stop_strings) message.add_stop(stop);
  message.mutable_stop_token_ids()->Add(request.stop_token_ids.begin(),
                                        request.stop_token_ids.end());
  message.set_ignore_eos(request.ignore_eos);
  return message;
}

orchestrator::Delta FromMessage(const v1::GenerateDelta& message) {
  orchestrator::Delta delta;
  delta.text = message.text();
  delta.token_ids.assign(message.token_ids().begin(),
                         message.token_ids().end());
  for (int i = 0; i < message.logprobs_size(); ++i) {
    SampledToken& token = delta.logprobs.emplace_back();
    if (i < message.token_ids_size()) token.token = message.token_ids(i);
    token.logprob = message.logprobs(i).logprob();
    for (const v1::TokenLogprob& top : message.logprobs(i).top()) {
      token.top_logprobs.push_back({top.token(), top.logprob()});
    }
  }
  return delta;
}

RemoteResult FromMessage(const v1::GenerateResult& message) {
  RemoteResult result;
  result.prompt.assign(message.prompt_token_ids().begin(),
                       message.prompt_token_ids().end());
  orchestrator::GenerationSummary& summary = result.summary;
  summary.finish = rpc::FromProto(message.finish_reason());
  summary.prompt_tokens = message.usage().prompt_tokens();
  summary.completion_tokens = message.usage().completion_tokens();
  summary.reused_tokens = message.usage().cached_prompt_tokens();
  summary.rounds = message.speculation().rounds();
  summary.drafted = message.speculation().drafted_tokens();
  summary.accepted = message.speculation().accepted_tokens();
  for (const v1::DrafterStats& stats : message.speculation().by_drafter()) {
    summary.by_drafter.push_back(
        {rpc::FromProto(stats.drafter()), stats.drafted_tokens(),
         stats.accepted_tokens(), stats.rounds(), stats.degraded_rounds()});
  }
  const v1::Timing& timing = message.timing();
  summary.draft_time = absl::Milliseconds(timing.draft_ms());
  summary.verify_time = absl::Milliseconds(timing.verify_ms());
  summary.time_to_first_token =
      absl::Milliseconds(timing.time_to_first_token_ms());
  summary.decoded_tokens = summary.rounds + summary.accepted;
  if (timing.decode_tokens_per_s() > 0) {
    summary.decode_time =
        absl::Seconds(static_cast<double>(summary.decoded_tokens) /
                      timing.decode_tokens_per_s());
  }
  result.mode = message.speculation().mode();
  result.seed = message.seed();
  return result;
}

}  // namespace

absl::StatusOr<RemoteResult> GenerateRemotely(
    const RemoteOptions& options, const std::optional<std::string>& text,
    const orchestrator::GenerationRequest& request, bool has_seed,
    const Mode& mode,
    const std::function<absl::Status(const orchestrator::Delta&)>& on_delta) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::GenerationClient> client,
      rpc::GenerationClient::Connect(options.address, options.channel));
  auto result = GenerateOver(*client, options.timeout, text, request, has_seed,
                             mode, on_delta);
  FORETOKEN_RETURN_IF_ERROR(Annotate(result.status(), options.address));
  return result;
}

absl::StatusOr<RemoteResult> GenerateOver(
    const rpc::GenerationClient& client, absl::Duration timeout,
    const std::optional<std::string>& text,
    const orchestrator::GenerationRequest& request, bool has_seed,
    const Mode& mode,
    const std::function<absl::Status(const orchestrator::Delta&)>& on_delta) {
  FORETOKEN_ASSIGN_OR_RETURN(const v1::GenerateRequest message,
                             ToMessage(text, request, has_seed, mode));
  absl::Status shown;
  const auto result = client.Generate(message, absl::Now() + timeout,
                                      [&](const v1::GenerateDelta& delta) {
                                        if (shown.ok())
                                          shown = on_delta(FromMessage(delta));
                                        return shown.ok();
                                      });
  FORETOKEN_RETURN_IF_ERROR(shown);
  FORETOKEN_RETURN_IF_ERROR(result.status());
  return FromMessage(*result);
}

}  // namespace foretoken::cli
