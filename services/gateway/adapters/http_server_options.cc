#include "services/gateway/adapters/http_server_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/byte_budget.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"

namespace foretoken::gateway {

void HttpServerOptions::AddFlags(Flags& flags, const std::string& prefix) {
  flag_prefix = prefix;
  const auto name = [&](const char* flag) { return prefix + flag; };
  flags.List(name("listen"), &listen,
             "Addresses of the HTTP API: HOST:PORT or unix:/PATH");
  flags.Bool(name("insecure"), &insecure,
             "Allow addresses beyond this machine without TLS: want a proxy "
             "that encrypts before them");
  flags.String(name("tls-cert"), &tls_cert, "PEM certificate chain");
  flags.String(name("tls-key"), &tls_key, "PEM private key");
  flags.String(name("tls-client-ca"), &tls_client_ca,
               "PEM roots that must sign client certificates (mTLS)");
  flags.Int(name("threads"), &threads, {1, 64}, "Threads of the HTTP server");
  flags.Int(name("max-connections"), &max_connections, {1, 1 << 20},
            "Maximum open connections; all listeners share 3/4 of the open-file "
            "limit");
  flags.Int(name("max-connections-per-peer"), &max_connections_per_peer,
            {0, 1 << 20},
            "Maximum open connections from one address; 0 for half of all");
  flags.Int(name("max-header-bytes"), &max_header_bytes, {1 << 10, 1 << 20},
            "Maximum size of a request's headers");
  flags.Int64(name("max-body-bytes"), &max_body_bytes, {1, int64_t{1} << 30},
              "Maximum size of a request's body");
  flags.Int64(
      name("body-memory"), &body_memory, {int64_t{1} << 20, int64_t{1} << 50},
      "Bytes for all bodies that are received or read together, 12 for "
      "each byte that has arrived; no caller (without keys: no address) "
      "gets more than three quarters");
  flags.Duration(name("request-time"), &request_time,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Close a connection whose request or TLS handshake takes "
                 "longer to arrive");
  flags.Duration(name("connection-idle"), &idle_time,
                 {absl::Milliseconds(10), absl::Hours(24)},
                 "Close a connection without a request after this time");
  flags.Duration(name("send-timeout"), &send_timeout,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Close a connection whose client takes less than 64 KiB of "
                 "its answer in this time, with more to take");
  flags.Duration(name("max-pause"), &max_pause,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Close a connection whose client has held up its answer for "
                 "this time in all");
  flags.Require(name("listen"),
                [this] { return std::string(Validate().message()); });
}

absl::Status HttpServerOptions::Validate() const {
  for (const std::string& address : listen) {
    FORETOKEN_RETURN_IF_ERROR(net::ValidateAddress(address));
    if (!insecure && tls_cert.empty() && !net::IsLocalAddress(address)) {
      return absl::InvalidArgumentError(absl::StrCat(
          address, ": beyond this machine: want TLS (--", flag_prefix,
          "tls-cert and --", flag_prefix, "tls-key), or --", flag_prefix,
          "insecure behind a proxy with TLS"));
    }
  }
  if (tls_cert.empty() != tls_key.empty()) {
    return absl::InvalidArgumentError(
        "TLS: want a certificate and its key together");
  }
  if (!tls_client_ca.empty() && tls_cert.empty()) {
    return absl::InvalidArgumentError(
        "roots of clients: want a certificate and its key with them");
  }
  if (max_body_bytes * kMemoryPerBodyByte >
      ByteBudget(body_memory).max_share()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "body memory of ", body_memory, " has no room for a body of ",
        max_body_bytes, ": want at least ", 16 * max_body_bytes));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::gateway
