// StreamOptions: the limits of a service's streams and their flags.
#ifndef FORETOKEN_COMMON_RPC_STREAM_OPTIONS_H_
#define FORETOKEN_COMMON_RPC_STREAM_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/config/flags.h"

namespace foretoken::rpc {

struct StreamOptions {
  int32_t max_streams = 1024;  // all connections together
  // A stream that sends nothing within this time is closed.
  absl::Duration first_message_time = absl::Seconds(10);
  // A stream whose client takes no message for this long is cancelled.
  absl::Duration stall_timeout = absl::Seconds(30);
  absl::Duration retry_after = absl::Milliseconds(100);
  // Time that clients get during a drain to read the last messages of a stream.
  absl::Duration linger = absl::Milliseconds(250);

  // Adds --max-streams (1..`most`), --first-message-time, --stall-timeout and
  // --retry-after.
  // `streams`: "Verify streams", for --help.
  void AddFlags(Flags& flags, const std::string& streams,
                int32_t most = 1 << 16);
};

// Adds --stall-timeout and --retry-after.
void AddAnswerFlags(Flags& flags, absl::Duration* stall_timeout,
                    absl::Duration* retry_after);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_STREAM_OPTIONS_H_
