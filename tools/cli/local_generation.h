// A model in this process: of `foretoken generate --local`, `foretoken prior
// grow --model` and `foretoken bench modes --model`.
#ifndef FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_
#define FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"
#include "services/orchestrator/core/generation_service.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

class LocalGeneration {
 public:
  virtual ~LocalGeneration() = default;
  virtual orchestrator::GenerationService& service() = 0;
};

// Starts all services; in a build without services the engine alone, where
// modes that need a service are Unimplemented. `tokens`: maximum of prompt and
// output together, 0 for any number; `tokenizer` may be null. The backend's
// max_sessions is the number of requests at once.
absl::StatusOr<std::unique_ptr<LocalGeneration>> StartLocalGeneration(
    const LocalModelFlags& flags, int64_t tokens,
    std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_
