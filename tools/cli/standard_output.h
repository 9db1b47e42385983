// A command's results on stdout.
#ifndef FORETOKEN_TOOLS_CLI_STANDARD_OUTPUT_H_
#define FORETOKEN_TOOLS_CLI_STANDARD_OUTPUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"

namespace foretoken::cli {

// Writes and flushes. DataLoss if stdout does not accept all of it: a full disk
// or a closed pipe must not look like success.
absl::Status WriteOut(absl::string_view text);

// Writes the value on one line, with the same errors.
absl::Status WriteJson(const Json& value);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_STANDARD_OUTPUT_H_
