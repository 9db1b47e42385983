// The limits of the HTTP server, and their flags.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_SERVER_OPTIONS_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/flags.h"
#include "common/rpc/listen_options.h"

namespace foretoken::gateway {

// Memory of a body and of what becomes of it while it is read: values of JSON
// are up to 16 bytes per two bytes of text, and a list that grows holds its old
// ones beside the new.
inline constexpr int64_t kMemoryPerBodyByte = 20;

struct HttpServerOptions : rpc::ListenOptions {
  int32_t threads = 2;
  int32_t max_header_bytes = 32 << 10;
  int64_t max_body_bytes = 8 << 20;
  int64_t body_memory = int64_t{512} << 20;
  // From the first byte of a request to its last; of a TLS handshake.
  absl::Duration request_time = absl::Seconds(30);
  absl::Duration idle_time = absl::Seconds(75);
  // For 64 KiB of an answer, or for what is left of it.
  absl::Duration send_timeout = absl::Seconds(30);
  // In which an answer is held up by its client, in all.
  absl::Duration max_pause = absl::Minutes(2);

  // --<prefix>listen, --<prefix>insecure, ..., with their rules. `prefix`: "",
  // or "http-" where other listeners have flags of these names.
  void AddFlags(Flags& flags, const std::string& prefix);

  // InvalidArgument for options that contradict each other or are unsafe.
  absl::Status Validate() const;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_SERVER_OPTIONS_H_
