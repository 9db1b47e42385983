// The status of what a service that shuts down ends or refuses.
//
// Callers may repeat it elsewhere at once: neither the request nor the host is
// at fault. Inside the process the mark is a payload of the status; common/rpc
// carries it between processes.
#ifndef FORETOKEN_COMMON_BASE_STOPPING_H_
#define FORETOKEN_COMMON_BASE_STOPPING_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace foretoken {

inline constexpr char kStoppingPayload[] = "foretoken/stopping";

// Marks an UNAVAILABLE status as that of a service that shuts down.
inline absl::Status MarkStopping(absl::Status status) {
  status.SetPayload(kStoppingPayload, absl::Cord());
  return status;
}

// UNAVAILABLE: "`service` is stopping".
inline absl::Status StoppingError(absl::string_view service) {
  return MarkStopping(
      absl::UnavailableError(absl::StrCat(service, " is stopping")));
}

// Whether StoppingError made `status`, here or on the other side of gRPC.
inline bool IsStopping(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         status.GetPayload(kStoppingPayload).has_value();
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_STOPPING_H_
