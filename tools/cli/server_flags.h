// Flags for reaching a server, shared by generate and health.
#ifndef FORETOKEN_TOOLS_CLI_SERVER_FLAGS_H_
#define FORETOKEN_TOOLS_CLI_SERVER_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace foretoken::cli {

struct ServerFlags {
  std::string tls_ca;  // PEM roots; enables TLS
  std::string tls_cert;
  std::string tls_key;
  std::string tls_name;
  bool insecure = false;
};

// Adds --server-tls-ca and so on. The other TLS flags require a CA.
void AddServerFlags(CLI::App& command, ServerFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_SERVER_FLAGS_H_
