#include "services/gateway/core/error_forms.h"

#include "common/base/json.h"
#include "gtest/gtest.h"

namespace foretoken::gateway {
namespace {

TEST(ErrorFormsTest, ThePathOfMessagesAndThoseBelowItHaveAnthropicsForm) {
  for (const char* path :
       {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"}) {
    EXPECT_EQ(ErrorFormOf(path), ErrorForm::kAnthropic) << path;
  }
  for (const char* path : {"/v1/chat/completions", "/v1/messagesx", "/v1", "",
                           "/v1/messages.json"}) {
    EXPECT_EQ(ErrorFormOf(path), ErrorForm::kOpenAi) << path;
  }
}

TEST(ErrorFormsTest, BodiesHaveTheFormsMembers) {
  const ApiError error =
      ToApiError(FieldError("top_k", "want 1..2", "invalid_value"));
  EXPECT_EQ(Json::parse(ErrorBody(error, ErrorForm::kAnthropic, "r-1")),
            Json::parse(R"({"type": "error", "request_id": "r-1",
                "error": {"type": "invalid_request_error",
                          "message": "top_k: want 1..2"}})"));
  EXPECT_FALSE(Json::parse(ErrorBody(error, ErrorForm::kAnthropic, ""))
                   .contains("request_id"));
  EXPECT_EQ(ErrorBody(error, ErrorForm::kOpenAi, "r-1"), error.Json());
}

TEST(ErrorFormsTest, EveryStatusHasANameThatAnthropicsClientsKnow) {
  const auto type = [](int http_status) -> std::string {
    ApiError error;
    error.http_status = http_status;
    const Json body = Json::parse(ErrorBody(error, ErrorForm::kAnthropic, ""));
    return body["error"]["type"];
  };
  EXPECT_EQ(type(400), "invalid_request_error");
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(403), "permission_error");
  EXPECT_EQ(type(404), "not_found_error");
  EXPECT_EQ(type(405), "invalid_request_error");
  EXPECT_EQ(type(408), "timeout_error");
  EXPECT_EQ(type(413), "request_too_large");
  EXPECT_EQ(type(415), "invalid_request_error");
  EXPECT_EQ(type(429), "rate_limit_error");
  EXPECT_EQ(type(431), "invalid_request_error");
  EXPECT_EQ(type(500), "api_error");
  EXPECT_EQ(type(503), "overloaded_error");
}

}  // namespace
}  // namespace foretoken::gateway
