// A model in this process as a Generator: of `generate`, `chat`, `prior grow`
// and `bench modes` with --model.
#ifndef FORETOKEN_TOOLS_CLI_LOCAL_GENERATOR_H_
#define FORETOKEN_TOOLS_CLI_LOCAL_GENERATOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/generation/generator.h"
#include "common/text/tokenizer.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

// Loads --model and starts what drafts for it: all services; in a build without
// services the engine alone, where modes that need a service are Unimplemented.
// `tokens`: maximum of prompt and output together, 0 for any number; `at_once`:
// maximum of requests that run at the same time, the others wait; `tokenizer`
// may be null. (Shared: the generator is a part of what is started.)
absl::StatusOr<std::shared_ptr<Generator>> StartLocalGenerator(
    const LocalModelFlags& flags, int64_t tokens, int32_t at_once,
    std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_LOCAL_GENERATOR_H_
