// Lines about answers.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_SUMMARY_LINE_H_
#define FORETOKEN_TOOLS_CLI_CHAT_SUMMARY_LINE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/generation/generation.h"
#include "common/speculation/drafter_id.h"

namespace foretoken::cli {

// Tokens, speed, accept length, mode and seed of one answer.
std::string SummaryLine(const GenerationSummary& summary);

// The line in a terminal's dim letters, or as it is.
std::string Dim(const std::string& line, bool colours);

// Sums over the answers of a chat.
class ChatStatistics {
 public:
  void Add(const GenerationSummary& summary);
  // Several lines, each ended.
  std::string Report() const;

 private:
  struct Drafted {
    int64_t drafted = 0;
    int64_t accepted = 0;
  };

  int64_t answers_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t reused_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t decoded_tokens_ = 0;
  int64_t rounds_ = 0;
  int64_t accepted_ = 0;
  absl::Duration decode_time_;
  std::map<DrafterId, Drafted> by_drafter_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_SUMMARY_LINE_H_
