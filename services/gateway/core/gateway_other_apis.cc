// Endpoints of other APIs than OpenAI's: Anthropic's /v1/messages.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/gateway_service.h"
#include "services/gateway/core/requests.h"
#include "services/gateway/core/thinking_wish.h"

namespace foretoken::gateway {
namespace {

constexpr char kVersionHeader[] = "anthropic-version";
// Their messages and events are the same. The newer one has no temperature,
// top_p and top_k, which are served under either.
constexpr char kOlder[] = "2023-06-01";
constexpr char kNewer[] = "2026-10-21";

absl::Status CheckVersion(const HttpRequest& request) {
  const absl::string_view version = request.Header(kVersionHeader);
  if (version.empty() || version == kOlder || version == kNewer) {
    return absl::OkStatus();
  }
  return Unsupported(kVersionHeader,
                     absl::StrCat("want ", kNewer, " or ", kOlder));
}

}  // namespace

bool GatewayService::BeginMessages(Context& context) {
  // The name under which Anthropic's SDKs look for it.
  context.headers.emplace_back("Request-Id", context.request_id);
  const absl::Status checked = CheckVersion(context.request);
  if (!checked.ok()) RespondError(context, checked);
  return checked.ok();
}

void GatewayService::Messages(std::shared_ptr<Context> context) {
  if (!BeginMessages(*context)) return;
  Converse(*context, ReadMessagesRequest(context->request.body),
           {"msg_", MakeMessagesAnswer});
}

void GatewayService::CountTokens(std::shared_ptr<Context> context) {
  if (!BeginMessages(*context)) return;
  auto request = ReadCountTokensRequest(context->request.body);
  context->request.body.clear();
  context->request.body.shrink_to_fit();
  if (!request.ok()) return RespondError(*context, request.status());
  const absl::Status named = ModelNamed(request->model).status();
  if (!named.ok()) return RespondError(*context, named);
  const auto prompt = EncodeChat(*context, *request->conversation,
                                 request->generation.constraint.source.size(),
                                 &request->thinking);
  if (!prompt.ok()) return RespondError(*context, prompt.status());
  const absl::Status wish = CheckThinkingWish(*parts_.chat, *request);
  if (!wish.ok()) return RespondError(*context, wish);
  RespondJson(*context, {{"input_tokens", prompt->size()}});
}

}  // namespace foretoken::gateway
