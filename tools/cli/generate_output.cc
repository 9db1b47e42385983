#include "tools/cli/generate_output.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "tools/cli/chat/summary_line.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

// JSON has no infinity; -9999 is the customary log-probability of 0.
double JsonLogprob(float logprob) {
  return logprob > -9999.0f ? logprob : -9999.0;
}

Json LogprobsJson(const std::vector<SampledToken>& tokens) {
  Json list = Json::array();
  for (const SampledToken& token : tokens) {
    Json top = Json::array();
    for (const TokenLogprob& entry : token.top_logprobs) {
      top.push_back(
          {{"token_id", entry.token}, {"logprob", JsonLogprob(entry.logprob)}});
    }
    list.push_back({{"token_id", token.token},
                    {"logprob", JsonLogprob(token.logprob)},
                    {"top", std::move(top)}});
  }
  return list;
}

}  // namespace

Json GenerateOutput::ResultJson(const GenerationSummary& summary) const {
  Json by_drafter = Json::object();
  for (const DrafterCounts& counts : summary.by_drafter) {
    by_drafter[DrafterName(counts.id)] = {
        {"drafted", counts.drafted},
        {"accepted", counts.accepted},
        {"rounds", counts.rounds},
        {"degraded_rounds", counts.degraded},
        {"shortened_drafts", counts.shortened}};
  }
  Json json = {
      {"prompt_token_ids", summary.prompt},
      {"token_ids", token_ids_},
      {"text", text_},
      {"finish_reason",
       summary.finish == FinishReason::kStop ? "stop" : "length"},
      {"usage",
       {{"prompt_tokens", summary.prompt_tokens},
        {"completion_tokens", summary.completion_tokens}}},
      {"speculation",
       {{"mode", summary.mode},
        {"rounds", summary.rounds},
        {"accept_length", summary.accept_length()},
        {"drafted_tokens", summary.drafted},
        {"accepted_tokens", summary.accepted},
        {"by_drafter", std::move(by_drafter)}}},
      {"timing",
       {{"ttft_ms", absl::ToDoubleMilliseconds(summary.time_to_first_token)},
        {"decode_tokens_per_s", summary.tokens_per_second()},
        {"draft_ms", absl::ToDoubleMilliseconds(summary.draft_time)},
        {"verify_ms", absl::ToDoubleMilliseconds(summary.verify_time)}}},
      {"seed", summary.seed}};
  if (has_logprobs_) json["logprobs"] = LogprobsJson(logprobs_);
  return json;
}

void GenerateOutput::ShowDrafters(const Tokenizer& tokenizer) {
  painter_.emplace(tokenizer, HasColours(STDOUT_FILENO));
}

void GenerateOutput::Abort() {
  // Only restores the terminal's colours; the request's own error is the one to
  // report.
  if (painter_.has_value()) WriteOut(painter_->Finish()).IgnoreError();
}

absl::Status GenerateOutput::Take(const GenerationDelta& delta) {
  // One of the three: painted text, plain text as it comes, or everything kept
  // for one JSON object at the end.
  if (painter_.has_value()) return WriteOut(painter_->Paint(delta));
  if (!json_) return WriteOut(delta.text);
  text_ += delta.text;
  token_ids_.insert(token_ids_.end(), delta.token_ids.begin(),
                    delta.token_ids.end());
  logprobs_.insert(logprobs_.end(), delta.logprobs.begin(),
                   delta.logprobs.end());
  return absl::OkStatus();
}

absl::Status GenerateOutput::Finish(const GenerationSummary& summary) {
  // The text of the answer went to stdout; all that follows goes to stderr, so
  // that a pipe gets the text alone.
  if (json_) return WriteJson(ResultJson(summary));
  FORETOKEN_RETURN_IF_ERROR(WriteOut(
      absl::StrCat(painter_.has_value() ? painter_->Finish() : "", "\n")));
  const bool colours = HasColours(STDERR_FILENO);
  if (painter_.has_value()) {
    std::fprintf(stderr, "%s\n", painter_->Legend(colours).c_str());
  }
  std::fprintf(stderr, "%s\n", Dim(SummaryLine(summary), colours).c_str());
  return absl::OkStatus();
}

}  // namespace foretoken::cli
