// The bearer token that a client sends, read again when its file changes.
//
// Copies share the token. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_BEARER_TOKEN_H_
#define FORETOKEN_COMMON_RPC_BEARER_TOKEN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken::rpc {

class BearerToken {
 public:
  // Interval between checks of the file for changes.
  static constexpr absl::Duration kReloadInterval = absl::Seconds(1);

  // No token.
  BearerToken() = default;
  // The first token of a token file (auth.h), whose errors these are. A file
  // that turns bad later is logged, and the old token stays.
  static absl::StatusOr<BearerToken> Load(const std::string& path,
                                          Clock clock = MonotonicClock());

  // "" if there is none.
  std::string Get() const;

 private:
  struct File;
  std::shared_ptr<File> file_;  // shared by the copies
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_BEARER_TOKEN_H_
