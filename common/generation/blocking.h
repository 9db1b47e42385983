// Generate: a request to a Generator as one blocking call, for command lines
// and tests.
#ifndef FORETOKEN_COMMON_GENERATION_BLOCKING_H_
#define FORETOKEN_COMMON_GENERATION_BLOCKING_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"

namespace foretoken {

using TakeDelta = absl::FunctionRef<absl::Status(const GenerationDelta&)>;

// Blocks until the request has ended. `on_delta` is called in this thread and
// may block; an error that it returns cancels the request and is returned once
// that has ended.
absl::StatusOr<GenerationSummary> Generate(Generator& generator,
                                           GenerationRequest request,
                                           TakeDelta on_delta);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GENERATION_BLOCKING_H_
