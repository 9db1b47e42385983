// Decisions of GatewayService on requests whose bodies have not come yet.
#include <optional>
#include <string>
#include <utility>

#include "services/gateway/core/error_forms.h"
#include "services/gateway/core/gateway_service.h"

namespace foretoken::gateway {

std::optional<std::string> GatewayService::BodyOwner(
    const HttpRequest& head) const {
  if (!parts_.find_caller) return head.peer;
  const std::optional<Caller> caller =
      parts_.find_caller(head.Header("Authorization"));
  if (!caller.has_value()) return std::nullopt;
  return caller->name.empty() ? head.peer : caller->name;
}

HttpHeaders GatewayService::HeadersOfRefusal(const HttpRequest& head) const {
  Context context;
  context.request.method = head.method;
  context.request.headers = head.headers;
  AddCorsHeaders(context);
  return std::move(context.headers);
}

std::string GatewayService::BodyOfRefusal(const HttpRequest& head,
                                          const ApiError& error) const {
  return ErrorBody(error, ErrorFormOf(head.path), /*request_id=*/"");
}

}  // namespace foretoken::gateway
