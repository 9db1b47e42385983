// Token files (auth.h) of a server that knows callers by name alone, because
// the server behind it applies weights and limits.
#ifndef FORETOKEN_COMMON_RPC_TOKEN_NAMES_H_
#define FORETOKEN_COMMON_RPC_TOKEN_NAMES_H_

#include <string>

#include "absl/status/status.h"

namespace foretoken::rpc {

// InvalidArgument names file and line of an attribute beyond TOKEN [NAME],
// which would be ignored; the other errors are those of Callers::Load.
absl::Status CheckNamesOnly(const std::string& path);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_TOKEN_NAMES_H_
