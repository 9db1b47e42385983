// What --version prints: the release, the commit and what was built in.
//
// The library foretoken::version holds it, apart from the flags: programs alone
// link it, so that a commit relinks them and no tests.
#ifndef FORETOKEN_COMMON_CONFIG_VERSION_H_
#define FORETOKEN_COMMON_CONFIG_VERSION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken {

// One line: "foretoken 0.1.0 (commit 1a2b3c4d5e6f; services, PostgreSQL, GPU
// module)".
std::string VersionLine(absl::string_view program);

// The commit that was built, with "-dirty" after changes; "unknown" outside a
// checkout. Written by cmake/Version.cmake.
extern const char kCommit[];

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_CONFIG_VERSION_H_
