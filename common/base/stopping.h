// The status that ends what still runs in a service when its drain is over.
//
// A caller may repeat such work elsewhere at once: nothing is wrong with the
// request or with the service's host. gRPC carries code and message alone, so
// the end of the message is what tells this status from another.
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
