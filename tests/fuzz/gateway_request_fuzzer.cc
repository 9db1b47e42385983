// Any text as the body of a request to the gateway: what is made of one that is
// taken is JSON again, and on one line where frames repeat it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/cut_json.h"
#include "services/gateway/core/infill_request.h"
#include "services/gateway/core/requests.h"

namespace {

using foretoken::ChatRequest;
using foretoken::Json;
using foretoken::ParseJson;

bool IsArray(absl::string_view json) {
  const auto parsed = ParseJson(json);
  return parsed.ok() && parsed->is_array();
}

void Check(const ChatRequest& conversation) {
  FORETOKEN_CHECK(IsArray(conversation.messages));
  FORETOKEN_CHECK(conversation.tools.empty() || IsArray(conversation.tools));
  FORETOKEN_CHECK(conversation.variables.empty() ||
                  ParseJson(conversation.variables).value().is_object());
}

template <typename Request>
bool Taken(const absl::StatusOr<Request>& request) {
  if (request.ok()) return true;
  FORETOKEN_CHECK(
      foretoken::gateway::ToApiError(request.status()).http_status == 400);
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken::gateway;
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  if (const auto request = ReadCompletionRequest(body); Taken(request)) {
    FORETOKEN_CHECK(!request->prompts.empty());
    FORETOKEN_CHECK(request->choices() <= kMaxChoices);
  }
  if (const auto request = ReadChatRequest(body); Taken(request)) {
    Check(*request->conversation);
  }
  if (const auto request = ReadResponsesRequest(body); Taken(request)) {
    Check(*request->conversation);
    FORETOKEN_CHECK(request->repeated.find('\n') == std::string::npos);
    FORETOKEN_CHECK(
        ParseJson(absl::StrCat("{", request->repeated.substr(1), "}")).ok());
  }
  if (const auto request = ReadMessagesRequest(body); Taken(request)) {
    Check(*request->conversation);
    FORETOKEN_CHECK(request->max_tokens.has_value());
  }
  if (const auto request = ReadCountTokensRequest(body); Taken(request)) {
    Check(*request->conversation);
  }
  if (const auto read = ReadInfillRequest(body); Taken(read)) {
    FORETOKEN_CHECK(read->input.extra.size() <= kMaxExtraFiles);
  }
  FORETOKEN_CHECK(Json::accept(WholeJsonObject(body)));
  Taken(ReadTokenizeRequest(body));
  Taken(ReadDetokenizeRequest(body));
  return 0;
}
