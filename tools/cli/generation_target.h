// Where the requests of `generate`, `chat` and `bench modes` are generated: in
// this process or on a server.
#ifndef FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_
#define FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"
#include "tools/cli/generator.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

// Connects to --server. `timeout_s`: of each request, 0 for none. `tokenizer`:
// that of --tokenizer, null without one; FailedPrecondition, now and for every
// request, if the server's model has another. Unimplemented in a build without
// services.
absl::StatusOr<std::unique_ptr<Generator>> OpenServerTarget(
    const RemoteServerFlags& flags, double timeout_s,
    std::shared_ptr<const Tokenizer> tokenizer);

// Loads --model and starts what drafts for it. `tokens`: maximum of prompt and
// output together, 0 for any number; `at_once`: maximum of requests that run at
// the same time, the others wait; `tokenizer` may be null.
absl::StatusOr<std::unique_ptr<Generator>> OpenLocalTarget(
    const LocalModelFlags& flags, int64_t tokens, int32_t at_once,
    std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_
