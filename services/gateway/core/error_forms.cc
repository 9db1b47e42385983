#include "services/gateway/core/error_forms.h"

#include "absl/strings/match.h"
#include "common/base/json.h"

namespace foretoken::gateway {
namespace {

constexpr absl::string_view kMessagesPath = "/v1/messages";

// The closed set of names that Anthropic's SDKs know.
const char* AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 500:
      return "api_error";
    case 503:
      return "overloaded_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

ErrorForm ErrorFormOf(absl::string_view path) {
  const bool below = absl::StartsWith(path, kMessagesPath) &&
                     (path.size() == kMessagesPath.size() ||
                      path[kMessagesPath.size()] == '/');
  return below ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
}

std::string ErrorBody(const ApiError& error, ErrorForm form,
                      absl::string_view request_id) {
  if (form == ErrorForm::kOpenAi) return error.Json();
  Json body = {{"type", "error"},
               {"error",
                {{"type", AnthropicType(error.http_status)},
                 {"message", error.message}}}};
  if (!request_id.empty()) body["request_id"] = std::string(request_id);
  return DumpJson(body);
}

}  // namespace foretoken::gateway
