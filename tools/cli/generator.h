// What answers requests: a server, or a model in this process.
#ifndef FORETOKEN_TOOLS_CLI_GENERATOR_H_
#define FORETOKEN_TOOLS_CLI_GENERATOR_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/speculation/generation.h"

namespace foretoken::cli {

// Thread-safe.
class Generator {
 public:
  using TakeDelta = absl::FunctionRef<absl::Status(const GenerationDelta&)>;

  virtual ~Generator() = default;
  // Blocks until the request has ended. `on_delta` is called by one thread at a
  // time, possibly not this one; an error that it returns cancels the request
  // and is returned.
  virtual absl::StatusOr<GenerationSummary> Generate(GenerationRequest request,
                                                     TakeDelta on_delta) = 0;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATOR_H_
