#include "tools/cli/chat/summary_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace foretoken::cli {

std::string SummaryLine(const GenerationSummary& summary) {
  return absl::StrFormat(
      "%d tokens, %.1f tokens/s, %.2f tokens a round, mode %s, seed %u",
      summary.completion_tokens, summary.tokens_per_second(),
      summary.accept_length(), summary.mode, summary.seed);
}

std::string Dim(const std::string& line, bool colours) {
  return colours ? absl::StrCat("\x1b[2m", line, "\x1b[0m") : line;
}

void ChatStatistics::Add(const GenerationSummary& summary) {
  ++answers_;
  prompt_tokens_ += summary.prompt_tokens;
  reused_tokens_ += summary.reused_tokens;
  completion_tokens_ += summary.completion_tokens;
  decoded_tokens_ += summary.decoded_tokens;
  rounds_ += summary.rounds;
  accepted_ += summary.accepted;
  decode_time_ += summary.decode_time;
  for (const DrafterCounts& counts : summary.by_drafter) {
    Drafted& drafted = by_drafter_[counts.id];
    drafted.drafted += counts.drafted;
    drafted.accepted += counts.accepted;
  }
}

std::string ChatStatistics::Report() const {
  // Speed counts the tokens after the first of each answer (decoded_tokens)
  // over the time that they took: prefill would hide the speed of decoding.
  const double seconds = absl::ToDoubleSeconds(decode_time_);
  // Accept length is committed tokens per round, bonus included, so plain
  // decoding, which has no rounds to count, is 1.
  std::string report = absl::StrFormat(
      "%d answers of %d tokens, %.1f tokens/s, %.2f tokens a round; prompts of "
      "%d tokens, %d of them reused\n",
      answers_, completion_tokens_,
      seconds > 0 ? static_cast<double>(decoded_tokens_) / seconds : 0.0,
      rounds_ == 0 ? 1.0 : 1.0 + static_cast<double>(accepted_) / rounds_,
      prompt_tokens_, reused_tokens_);
  for (const auto& [drafter, counts] : by_drafter_) {
    absl::StrAppendFormat(&report, "  %s: %d drafted, %d accepted\n",
                          DrafterName(drafter), counts.drafted,
                          counts.accepted);
  }
  return report;
}

}  // namespace foretoken::cli
