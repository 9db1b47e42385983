// The bearer token that a client sends, read again when its file changes.
//
// Copies share the token. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_BEARER_TOKEN_H_
#define FORETOKEN_COMMON_RPC_BEARER_TOKEN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/reloaded_file.h"

namespace foretoken::rpc {

class BearerToken {
 public:
  // No token.
  BearerToken() = default;
  // The first token of a token file (auth.h), whose errors these are. A file
  // that turns bad later is logged, and the old token stays.
  static absl::StatusOr<BearerToken> Load(const std::string& path,
                                          Clock clock = MonotonicClock());

  // "" if there is none.
  std::string Get() const;

 private:
  std::shared_ptr<ReloadedFile<std::string>> file_;  // shared by the copies
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_BEARER_TOKEN_H_
