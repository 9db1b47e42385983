#include "common/config/version.h"

#include "absl/strings/str_cat.h"

namespace foretoken {

std::string VersionLine(absl::string_view program) {
  return absl::StrCat(
      program, " ", FORETOKEN_VERSION, " (commit ", kCommit, "; ",
      // The services bring libpq with them.
      FORETOKEN_BUILDS_SERVICES ? "services, PostgreSQL" : "no services", ", ",
      FORETOKEN_BUILDS_CUDA ? "GPU module" : "no GPU module", ")");
}

}  // namespace foretoken
