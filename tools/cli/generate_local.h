// `foretoken generate --local`: the model in this process.
#ifndef FORETOKEN_TOOLS_CLI_GENERATE_LOCAL_H_
#define FORETOKEN_TOOLS_CLI_GENERATE_LOCAL_H_

#include "absl/status/status.h"
#include "tools/cli/generate_flags.h"

namespace foretoken::cli {

// Writes the output. With services built in, all of them run, joined by
// in-process channels; without, the engine alone, and modes that need a service
// are Unimplemented.
absl::Status GenerateLocally(const GenerateFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_LOCAL_H_
