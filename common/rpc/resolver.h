// Resolver: the addresses behind a host name.
#ifndef FORETOKEN_COMMON_RPC_RESOLVER_H_
#define FORETOKEN_COMMON_RPC_RESOLVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::rpc {

// Thread-safe.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // The addresses of "HOST:PORT", each with its port ("10.0.0.7:50051",
  // "[fd00::7]:50051"), without duplicates. Blocks. NotFound if the host has
  // none, Unavailable if no name server answers.
  virtual absl::StatusOr<std::vector<std::string>> Resolve(
      const std::string& host_port) = 0;
};

// Asks the system (getaddrinfo), which reads /etc/hosts and the search domains
// of /etc/resolv.conf. A host with IPv4 and IPv6 addresses has those of IPv4
// alone: a process that listens on both must not be two members.
std::shared_ptr<Resolver> SystemResolver();

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_RESOLVER_H_
