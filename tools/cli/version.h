// The version of a command line.
#ifndef FORETOKEN_TOOLS_CLI_VERSION_H_
#define FORETOKEN_TOOLS_CLI_VERSION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::cli {

// Program, release, commit and what was built in, on one line:
// "foretoken 0.1.0 (commit 1a2b3c4d5e6f; services, PostgreSQL)".
std::string VersionLine(absl::string_view program);

// The commit that was built, with "-dirty" after changes; "unknown" outside a
// checkout. Written by cmake/Version.cmake.
extern const char kCommit[];

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_VERSION_H_
