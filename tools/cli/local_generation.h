// The model of `foretoken generate --local`, in this process.
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
// output together; `tokenizer` may be null.
absl::StatusOr<std::unique_ptr<LocalGeneration>> StartLocalGeneration(
    const GenerateFlags& flags, int64_t tokens,
    std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_LOCAL_GENERATION_H_
