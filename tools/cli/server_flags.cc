#include "tools/cli/server_flags.h"

namespace foretoken::cli {

void AddServerFlags(CLI::App& command, ServerFlags& flags) {
  CLI::Option* ca = command.add_option(
      "--server-tls-ca", flags.tls_ca,
      "PEM roots of the server's certificate; switches TLS on");
  CLI::Option* cert =
      command.add_option("--server-tls-cert", flags.tls_cert,
                         "PEM certificate to show, where the server wants one");
  CLI::Option* key = command.add_option("--server-tls-key", flags.tls_key,
                                        "PEM key of that certificate");
  cert->needs(key)->needs(ca);
  key->needs(cert);
  command
      .add_option("--server-tls-name", flags.tls_name,
                  "Name in the server's certificate, if not its address")
      ->needs(ca);
  command.add_flag("--server-insecure", flags.insecure,
                   "Allow a server beyond this machine without TLS");
}

}  // namespace foretoken::cli
