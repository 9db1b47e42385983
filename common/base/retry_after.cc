#include "common/base/retry_after.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

constexpr char kUrl[] = "foretoken/retry-after-ns";
constexpr absl::Duration kMin = absl::Milliseconds(1);
// Larger hints are a mistake of their maker.
constexpr absl::Duration kMax = absl::Hours(1);

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  // In nanoseconds: a payload is text, and the unit must not be guessed.
  status.SetPayload(kUrl, absl::Cord(absl::StrCat(absl::ToInt64Nanoseconds(
                              std::clamp(delay, kMin, kMax)))));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kUrl);
  int64_t nanoseconds = 0;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(*payload), &nanoseconds)) {
    return std::nullopt;
  }
  return absl::Nanoseconds(nanoseconds);
}

}  // namespace foretoken
