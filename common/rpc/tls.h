// TLS credentials whose files are read again when they change.
//
// New connections use what the files hold; connections that exist stay. gRPC
// does not check that key and certificate belong together: until both are
// replaced, and for as long as one cannot be used, new connections are refused.
// Replace them at once, by switching a symbolic link as Kubernetes does, or one
// by one by rename. A root that replaces another goes first, beside the old one
// in the same file, so that both sides accept each other all along.
//
// Stateless functions; thread-safe.
#ifndef FORETOKEN_COMMON_RPC_TLS_H_
#define FORETOKEN_COMMON_RPC_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace foretoken::rpc {

// PEM files.
struct TlsFiles {
  std::string cert;  // certificate chain and its private key
  std::string key;
  std::string ca;  // roots of the peer's certificate
};

// Interval between checks of the files for changes, in seconds.
inline constexpr unsigned int kTlsReloadSeconds = 1;

// InvalidArgument names a file that holds no certificate or key, or a key that
// is not the certificate's; NotFound a missing one. Empty names are skipped.
absl::Status CheckTlsFiles(const TlsFiles& files);

// `cert` and `key` are required. With `ca`, clients need a certificate that it
// signed. Errors are those of CheckTlsFiles.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsForServer(
    const TlsFiles& files);

// `ca` is required; `cert` and `key` are for servers that ask for them.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsForClient(
    const TlsFiles& files);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_TLS_H_
