#include "tools/cli/version.h"

#include "absl/strings/str_cat.h"

namespace foretoken::cli {

std::string VersionLine(absl::string_view program) {
  std::string parts;
#ifdef FORETOKEN_HAVE_SERVICES
  parts += "services";
#else
  parts += "no services";
#endif
#ifdef FORETOKEN_HAVE_POSTGRES
  parts += ", PostgreSQL";
#endif
  if (FORETOKEN_BUILDS_CUDA) parts += ", CUDA";
  return absl::StrCat(program, " ", FORETOKEN_VERSION, " (commit ", kCommit,
                      "; ", parts, ")");
}

}  // namespace foretoken::cli
