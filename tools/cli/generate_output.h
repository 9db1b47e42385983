// What `foretoken generate` prints: text as it comes, or one JSON object.
#ifndef FORETOKEN_TOOLS_CLI_GENERATE_OUTPUT_H_
#define FORETOKEN_TOOLS_CLI_GENERATE_OUTPUT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"
#include "common/sampling/sampler.h"
#include "services/orchestrator/core/decode_loop.h"

namespace foretoken::cli {

// Owned by one thread.
class GenerateOutput {
 public:
  explicit GenerateOutput(bool json) : json_(json) {}

  // Shows a delta at once, or keeps it for the object. DataLoss where stdout
  // cannot be written.
  absl::Status Take(const orchestrator::Delta& delta);

  // Ends the text, or prints the object in one line.
  absl::Status Finish(const std::vector<TokenId>& prompt,
                      const orchestrator::GenerationSummary& summary,
                      const std::string& mode, const SamplingParams& sampling);

 private:
  std::string ResultJson(const std::vector<TokenId>& prompt,
                         const orchestrator::GenerationSummary& summary,
                         const std::string& mode,
                         const SamplingParams& sampling) const;

  const bool json_;
  std::string text_;
  std::vector<TokenId> token_ids_;
  std::vector<SampledToken> logprobs_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_OUTPUT_H_
