// The status of what a service that shuts down ends or refuses.
//
// Callers may repeat it elsewhere at once: neither the request nor the host is
// at fault. The end of the message marks the status, since rpc/status.h carries
// only the code, the message and the retry hint.
#ifndef FORETOKEN_COMMON_BASE_STOPPING_H_
#define FORETOKEN_COMMON_BASE_STOPPING_H_

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace foretoken {

inline constexpr absl::string_view kIsStopping = " is stopping";

// UNAVAILABLE: "`service` is stopping".
inline absl::Status StoppingError(absl::string_view service) {
  return absl::UnavailableError(absl::StrCat(service, kIsStopping));
}

// Whether StoppingError made `status`, here or on the other side of gRPC.
inline bool IsStopping(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         absl::EndsWith(status.message(), kIsStopping);
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_STOPPING_H_
