#include "tools/cli/standard_output.h"
#include "common/base/json.h"

#include <cstdio>

namespace foretoken::cli {

absl::Status WriteOut(absl::string_view text) {
  // Flushed each time: readers of a pipe see text as it comes, and a full disk
  // is noticed at once.
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    return absl::DataLossError("stdout: cannot write");
  }
  return absl::OkStatus();
}

absl::Status WriteJson(const Json& value) {
  return WriteOut(DumpJson(value) + "\n");
}

}  // namespace foretoken::cli
