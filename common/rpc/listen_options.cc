#include "common/rpc/listen_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"

namespace foretoken::rpc {

void ListenOptions::AddListenFlags(Flags& flags, const std::string& prefix,
                                   const std::string& of) {
  flag_prefix = prefix;
  const auto name = [&](const char* flag) { return prefix + flag; };
  flags.List(name("listen"), &listen,
             absl::StrCat("Addresses of ", of, ": HOST:PORT or unix:/PATH"));
  flags.Bool(name("insecure"), &insecure,
             "Allow addresses beyond this machine without TLS: want a proxy "
             "that encrypts before them");
  flags.String(name("tls-cert"), &tls_cert, "PEM certificate chain");
  flags.String(name("tls-key"), &tls_key, "PEM private key");
  flags.String(name("tls-client-ca"), &tls_client_ca,
               "PEM roots that must sign client certificates (mTLS)");
  flags.Int(
      name("max-connections"), &max_connections, {1, 1 << 20},
      "Maximum open connections; all listeners share 3/4 of the open-file "
      "limit");
  flags.Int(name("max-connections-per-peer"), &max_connections_per_peer,
            {0, 1 << 20},
            "Maximum open connections from one address; 0 for half of all");
}

absl::Status ListenOptions::ValidateListen() const {
  const std::string flag = absl::StrCat("--", flag_prefix);
  const std::string pair = absl::StrCat(flag, "tls-cert and ", flag, "tls-key");
  for (const std::string& address : listen) {
    FORETOKEN_RETURN_IF_ERROR(net::ValidateAddress(address));
    // TLS makes any listener safe, and a local one needs none.
    if (insecure || !tls_cert.empty() || net::IsLocalAddress(address)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("listen address ", address, " is not loopback: want TLS (",
                     pair, "), or ", flag, "insecure behind a proxy with TLS"));
  }
  if (tls_cert.empty() != tls_key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("want ", pair, " together"));
  }
  if (!tls_client_ca.empty() && tls_cert.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, "tls-client-ca: want ", pair, " with it"));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::rpc
