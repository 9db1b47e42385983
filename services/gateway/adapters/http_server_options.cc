#include "services/gateway/adapters/http_server_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/byte_budget.h"
#include "common/base/status_macros.h"

namespace foretoken::gateway {

void HttpServerOptions::AddFlags(Flags& flags, const std::string& prefix) {
  AddListenFlags(flags, prefix, "the HTTP API");
  const auto name = [&](const char* flag) { return prefix + flag; };
  flags.Int(name("threads"), &threads, {1, 64}, "Threads of the HTTP server");
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
  FORETOKEN_RETURN_IF_ERROR(ValidateListen());
  if (max_body_bytes * kMemoryPerBodyByte >
      ByteBudget(body_memory).max_share()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "body memory of ", body_memory, " has no room for a body of ",
        max_body_bytes, ": want at least ", 16 * max_body_bytes));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::gateway
