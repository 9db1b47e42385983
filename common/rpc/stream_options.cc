#include "common/rpc/stream_options.h"

#include "absl/strings/str_cat.h"

namespace foretoken::rpc {

void StreamOptions::AddFlags(Flags& flags, const std::string& streams,
                             int32_t most) {
  flags.Int("max-streams", &max_streams, {1, most},
            absl::StrCat("Maximum number of open ", streams));
  flags.Duration("first-message-time", &first_message_time,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Close a stream that sends nothing within this time");
  AddAnswerFlags(flags, &stall_timeout, &retry_after);
}

void AddAnswerFlags(Flags& flags, absl::Duration* stall_timeout,
                    absl::Duration* retry_after) {
  flags.Duration("stall-timeout", stall_timeout,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Cancel a stream whose client takes no message for this time");
  flags.Duration("retry-after", retry_after,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Retry hint sent with RESOURCE_EXHAUSTED");
}

}  // namespace foretoken::rpc
