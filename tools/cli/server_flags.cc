#include "tools/cli/server_flags.h"

namespace foretoken::cli {

void AddServerFlags(CLI::App& command, ServerFlags& flags) {
  CLI::Option* ca =
      command.add_option("--server-tls-ca", flags.tls_ca,
                         "PEM roots for the server's certificate; enables TLS");
  CLI::Option* cert =
      command.add_option("--server-tls-cert", flags.tls_cert,
                         "PEM client certificate, if the server requires one");
  CLI::Option* key = command.add_option("--server-tls-key", flags.tls_key,
                                        "PEM key of that certificate");
  cert->needs(key)->needs(ca);
  key->needs(cert);
  command
      .add_option("--server-tls-name", flags.tls_name,
                  "Name in the server's certificate, if not its address")
      ->needs(ca);
  command.add_flag("--server-insecure", flags.insecure,
                   "Allow a remote server without TLS");
}

}  // namespace foretoken::cli
