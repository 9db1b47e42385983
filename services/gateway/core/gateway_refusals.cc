// Decisions of GatewayService on requests whose bodies have not come yet.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "services/gateway/core/error_forms.h"
#include "services/gateway/core/gateway_service.h"

namespace foretoken::gateway {
namespace {

constexpr char kKeyHeader[] = "x-api-key";

// `Authorization` as it is, or with the key of `x-api-key`, which clients of
// Anthropic's API send. Empty if they disagree or there are several keys: a
// proxy may have checked one of them.
std::string AuthorizationOf(const HttpRequest& head) {
  const absl::string_view authorization = head.Header("Authorization");
  const int64_t keys = std::count_if(
      head.headers.begin(), head.headers.end(), [](const auto& header) {
        return absl::EqualsIgnoreCase(header.first, kKeyHeader);
      });
  if (keys == 0) return std::string(authorization);
  std::string bearer = absl::StrCat("Bearer ", head.Header(kKeyHeader));
  const bool disagree = !authorization.empty() && authorization != bearer;
  return keys > 1 || disagree ? "" : bearer;
}

}  // namespace

std::optional<Caller> GatewayService::CallerOf(const HttpRequest& head) const {
  return parts_.find_caller(AuthorizationOf(head));
}

std::optional<std::string> GatewayService::BodyOwner(
    const HttpRequest& head) const {
  if (!parts_.find_caller) return head.peer;
  const std::optional<Caller> caller = CallerOf(head);
  if (!caller.has_value()) return std::nullopt;
  return caller->name.empty() ? head.peer : caller->name;
}

HttpHeaders GatewayService::HeadersOfRefusal(const HttpRequest& head) const {
  Context context;
  context.request.method = head.method;
  context.request.path = head.path;
  context.request.headers = head.headers;
  NameRequest(context);
  AddCorsHeaders(context);
  return std::move(context.headers);
}

std::string GatewayService::BodyOfRefusal(const HttpRequest& head,
                                          const ApiError& error) const {
  return ErrorBody(error, ErrorFormOf(head.path), /*request_id=*/"");
}

}  // namespace foretoken::gateway
