// Bearer tokens: who may call.
//
// A token file holds one token a line; blank lines and lines that begin with
// `#` are skipped. The presented token is hashed and compared with every known
// hash in constant time, so that neither its bytes nor its position leak.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_AUTH_H_
#define FORETOKEN_COMMON_RPC_AUTH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "grpcpp/security/auth_metadata_processor.h"

namespace foretoken::rpc {

class BearerTokens {
 public:
  static constexpr size_t kMinTokenBytes = 16;
  static constexpr size_t kMaxTokens = 1000;

  // InvalidArgument names file and line of a token that is too short or holds
  // a space, and a file without any.
  static absl::StatusOr<BearerTokens> Load(const std::string& path);

  // `authorization`: the header's value, "Bearer <token>".
  bool Accepts(absl::string_view authorization) const;

 private:
  std::vector<Sha256Digest> digests_;
};

// Lets a call through if it carries a known token or is a health check, else
// ends it with UNAUTHENTICATED. Runs before any handler.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeBearerProcessor(
    BearerTokens tokens);

// The single token of a client's token file (the first line that holds one).
absl::StatusOr<std::string> LoadClientToken(const std::string& path);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_AUTH_H_
