// Output of `foretoken generate`: streamed text and a line about it, or one
// JSON object.
#ifndef FORETOKEN_TOOLS_CLI_GENERATE_OUTPUT_H_
#define FORETOKEN_TOOLS_CLI_GENERATE_OUTPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "common/generation/generation.h"
#include "common/sampling/sampler.h"
#include "common/text/tokenizer.h"
#include "tools/cli/chat/drafter_painter.h"

namespace foretoken::cli {

// Owned by one thread.
class GenerateOutput {
 public:
  GenerateOutput(bool json, bool logprobs)
      : json_(json), has_logprobs_(logprobs) {}

  // Paints the text by drafter and adds a legend. `tokenizer` must outlive this
  // object.
  void ShowDrafters(const Tokenizer& tokenizer);

  // Prints a delta at once, or keeps it for the JSON object. DataLoss if stdout
  // cannot be written.
  absl::Status Take(const GenerationDelta& delta);

  // Ends the text and writes a line about it to stderr, or prints the JSON
  // object on one line.
  absl::Status Finish(const GenerationSummary& summary);
  // The request failed: ends the text that was printed.
  void Abort();

 private:
  Json ResultJson(const GenerationSummary& summary) const;

  const bool json_;
  const bool has_logprobs_;
  std::optional<DrafterPainter> painter_;
  std::string text_;
  std::vector<TokenId> token_ids_;
  std::vector<SampledToken> logprobs_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_OUTPUT_H_
