// How commands reach a server: the flags that generate and health share.
#ifndef FORETOKEN_TOOLS_CLI_SERVER_FLAGS_H_
#define FORETOKEN_TOOLS_CLI_SERVER_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace foretoken::cli {

struct ServerFlags {
  std::string tls_ca;  // PEM roots; switches TLS on
  std::string tls_cert;
  std::string tls_key;
  std::string tls_name;
  bool insecure = false;
};

// --server-tls-ca and so on. What goes with TLS is refused without a CA.
void AddServerFlags(CLI::App& command, ServerFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_SERVER_FLAGS_H_
