// Where the requests of `generate` and `chat` are generated: in this process or
// on a server.
#ifndef FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_
#define FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/speculation/generation.h"
#include "common/text/tokenizer.h"
#include "tools/cli/generate_flags.h"

namespace foretoken::cli {

class GenerationTarget {
 public:
  virtual ~GenerationTarget() = default;

  // Blocks until the request ends. An error of `on_delta` cancels it and is
  // returned.
  virtual absl::StatusOr<GenerationSummary> Generate(
      GenerationRequest request,
      absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta) = 0;
};

// Connects to --server. `tokenizer`: that of --tokenizer, null without one;
// FailedPrecondition, now and for every request, if the server's model has
// another. Unimplemented in a build without services.
absl::StatusOr<std::unique_ptr<GenerationTarget>> OpenServerTarget(
    const RequestFlags& flags, std::shared_ptr<const Tokenizer> tokenizer);

// Loads --model and starts what drafts for it. `tokens`: maximum of prompt and
// output together, 0 for any number; `tokenizer` may be null.
absl::StatusOr<std::unique_ptr<GenerationTarget>> OpenLocalTarget(
    const RequestFlags& flags, int64_t tokens,
    std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_
