// The retry hint of a status: when a caller may try again. Inside the process a
// payload of the status; common/rpc carries it between processes.
#ifndef FORETOKEN_COMMON_BASE_RETRY_AFTER_H_
#define FORETOKEN_COMMON_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace foretoken {

// Adds a hint to retry after `delay`, at least 1 ms and at most an hour.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_RETRY_AFTER_H_
