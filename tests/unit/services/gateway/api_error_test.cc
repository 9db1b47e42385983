#include "services/gateway/core/api_error.h"

#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/retry_after.h"
#include "common/base/stopping.h"
#include "gtest/gtest.h"

namespace foretoken::gateway {
namespace {

TEST(ApiErrorTest, StatusesOfHttpFollowTheCode) {
  const std::vector<std::pair<absl::StatusCode, int>> wanted = {
      {absl::StatusCode::kInvalidArgument, 400},
      {absl::StatusCode::kFailedPrecondition, 400},
      {absl::StatusCode::kUnimplemented, 400},
      {absl::StatusCode::kUnauthenticated, 401},
      {absl::StatusCode::kPermissionDenied, 403},
      {absl::StatusCode::kNotFound, 404},
      {absl::StatusCode::kDeadlineExceeded, 408},
      {absl::StatusCode::kResourceExhausted, 429},
      {absl::StatusCode::kUnavailable, 503},
      {absl::StatusCode::kAborted, 503},
      {absl::StatusCode::kInternal, 500},
      {absl::StatusCode::kDataLoss, 500}};
  for (const auto& [code, http_status] : wanted) {
    EXPECT_EQ(ToApiError(absl::Status(code, "x")).http_status, http_status);
  }
}

TEST(ApiErrorTest, TheBodyHasOpenAisForm) {
  const Json body = Json::parse(
      ToApiError(FieldError("top_p", "want 0..1", "invalid_value")).Json());
  EXPECT_EQ(body["error"]["message"], "top_p: want 0..1");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["param"], "top_p");
  EXPECT_EQ(body["error"]["code"], "invalid_value");
}

TEST(ApiErrorTest, FieldsThatTheOrchestratorChecksAreFound) {
  EXPECT_EQ(
      ToApiError(absl::InvalidArgumentError("max_tokens is 9, want ...")).param,
      "max_tokens");
  EXPECT_EQ(ToApiError(absl::InvalidArgumentError("prompt: it is empty")).param,
            "prompt");
  EXPECT_EQ(ToApiError(absl::InvalidArgumentError("text: too big")).param,
            "prompt");
  EXPECT_EQ(ToApiError(absl::InvalidArgumentError("no such thing")).param, "");
}

TEST(ApiErrorTest, RequestsOverTheContextHaveTheirCode) {
  const ApiError error = ToApiError(
      absl::InvalidArgumentError("max_tokens is 9: with the prompt's 8 tokens "
                                 "it is too much, this model's "
                                 "maximum context length is 16 tokens"));
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_EQ(ToApiError(absl::InvalidArgumentError("max_tokens is 0")).code, "");
}

TEST(ApiErrorTest, HintsToRetryAreKept) {
  const absl::Status full = WithRetryAfter(absl::ResourceExhaustedError("full"),
                                           absl::Milliseconds(1500));
  EXPECT_EQ(ToApiError(full).retry_after_ms, 1500);
  EXPECT_EQ(ToApiError(StoppingError("it")).retry_after_ms, 1000);
  EXPECT_EQ(ToApiError(absl::InvalidArgumentError("x")).retry_after_ms, 0);
}

TEST(ApiErrorTest, InternalErrorsShowNothing) {
  EXPECT_EQ(ToApiError(absl::InternalError("secret")).message,
            "internal error");
}

}  // namespace
}  // namespace foretoken::gateway
