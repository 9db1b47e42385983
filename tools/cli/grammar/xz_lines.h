// The lines of a text file that may be compressed with gzip or xz.
#ifndef FORETOKEN_TOOLS_CLI_GRAMMAR_XZ_LINES_H_
#define FORETOKEN_TOOLS_CLI_GRAMMAR_XZ_LINES_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::cli {

// Calls `take` for every line that is not empty; an error that it returns ends
// the reading, with the line's number. As LineReader, and xz files, which are
// read whole: ResourceExhausted above 1 GiB.
absl::Status ForEachLine(
    const std::string& path,
    const std::function<absl::Status(absl::string_view line)>& take);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GRAMMAR_XZ_LINES_H_
