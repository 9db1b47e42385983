// IsOk() and StatusIs(code, message matcher) for Status and StatusOr. Debian
// 12's Abseil has none.
#ifndef FORETOKEN_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define FORETOKEN_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace foretoken::testing {

inline absl::Status GetStatus(const absl::Status& status) { return status; }
template <typename T>
absl::Status GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  const absl::Status status = GetStatus(arg);
  if (!status.ok()) *result_listener << status.ToString();
  return status.ok();
}

MATCHER_P2(StatusIs, code, message_matcher, "has the wanted status") {
  const absl::Status status = GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(
             message_matcher, std::string(status.message()), result_listener);
}

}  // namespace foretoken::testing

#define FORETOKEN_ASSERT_OK(expr) \
  ASSERT_THAT((expr), ::foretoken::testing::IsOk())
#define FORETOKEN_EXPECT_OK(expr) \
  EXPECT_THAT((expr), ::foretoken::testing::IsOk())

#endif  // FORETOKEN_TESTS_SUPPORT_STATUS_MATCHERS_H_
