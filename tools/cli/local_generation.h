// A model in this process: of `foretoken generate --local` and of `foretoken
// prior grow --model`.
#ifndef FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_
#define FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"
#include "services/orchestrator/core/generation_service.h"
#include "tools/cli/generate_flags.h"

namespace foretoken::cli {

class LocalGeneration {
 public:
  virtual ~LocalGeneration() = default;
  virtual orchestrator::GenerationService& service() = 0;
};

// Starts all services; in a build without services the engine alone, where
// modes that need a service are Unimplemented. `tokens`: maximum of prompt and
// output together; 0: the model's own. `tokenizer` may be null. `sessions`:
// requests at once.
absl::StatusOr<std::unique_ptr<LocalGeneration>> StartLocalGeneration(
    const GenerateFlags& flags, int64_t tokens,
    std::shared_ptr<const Tokenizer> tokenizer, int sessions = 1);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_
