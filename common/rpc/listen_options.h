// ListenOptions: where a server listens, over gRPC or HTTP, and whose
// connections it takes.
#ifndef FORETOKEN_COMMON_RPC_LISTEN_OPTIONS_H_
#define FORETOKEN_COMMON_RPC_LISTEN_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/flags.h"
#include "common/net/connection_table.h"
#include "common/rpc/tls.h"

namespace foretoken::rpc {

struct ListenOptions {
  std::vector<std::string> listen;  // addresses
  std::string flag_prefix;          // of the flags, for messages
  bool insecure = false;            // beyond this machine without TLS
  // PEM files, read again when they change; both or neither.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;  // if set, clients need a certificate signed by it
  // At most 3/4 of the limit of open files.
  int32_t max_connections = 4096;
  int32_t max_connections_per_peer = 0;  // 0: half of all

  TlsFiles tls_files() const { return {tls_cert, tls_key, tls_client_ca}; }
  net::ConnectionLimits connection_limits() const {
    return net::ConnectionLimits::WithinFileLimit(max_connections,
                                                  max_connections_per_peer);
  }

  // --<prefix>listen, insecure, tls-cert, tls-key, tls-client-ca,
  // max-connections and max-connections-per-peer. `prefix`: "", or "http-" where
  // another listener has flags of these names. `of` names the server in the
  // help.
  void AddListenFlags(Flags& flags, const std::string& prefix,
                      const std::string& of);

  // InvalidArgument for a malformed address, an address beyond this machine
  // without TLS or `insecure`, and a certificate without its key.
  absl::Status ValidateListen() const;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_LISTEN_OPTIONS_H_
