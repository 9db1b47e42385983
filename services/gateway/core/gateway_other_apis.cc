// Endpoints of other APIs than OpenAI's: Anthropic's /v1/messages and
// llama.cpp's /infill.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/encoding_memory.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/gateway_service.h"
#include "services/gateway/core/infill_request.h"
#include "services/gateway/core/reasoning_rules.h"
#include "services/gateway/core/requests.h"

namespace foretoken::gateway {
namespace {

constexpr char kVersionHeader[] = "anthropic-version";
// Their messages and events are the same. The newer one has no temperature,
// top_p and top_k, which are served under either.
constexpr char kOlder[] = "2023-06-01";
constexpr char kNewer[] = "2026-10-21";

}  // namespace

bool GatewayService::CheckVersion(Context& context) const {
  const absl::string_view version = context.request.Header(kVersionHeader);
  if (version.empty() || version == kOlder || version == kNewer) return true;
  RespondError(context,
               Unsupported(kVersionHeader,
                           absl::StrCat("want ", kNewer, " or ", kOlder)));
  return false;
}

void GatewayService::Messages(std::shared_ptr<Context> context) {
  if (!CheckVersion(*context)) return;
  Converse(*context, ReadMessagesRequest(context->request.body),
           {"msg_", MakeMessagesAnswer});
}

void GatewayService::CountTokens(std::shared_ptr<Context> context) {
  if (!CheckVersion(*context)) return;
  auto request = ReadCountTokensRequest(context->request.body);
  context->request.DropBody();
  if (!request.ok()) return RespondError(*context, request.status());
  const absl::Status named = ModelNamed(request->model).status();
  if (!named.ok()) return RespondError(*context, named);
  if (parts_.chat != nullptr && parts_.chat->has_template()) {
    const absl::Status wish = ApplyThinkingWish(*parts_.chat, *request);
    if (!wish.ok()) return RespondError(*context, wish);
  }
  const auto prompt = EncodeChat(*context, *request->conversation,
                                 request->generation.constraint.source.size());
  if (!prompt.ok()) return RespondError(*context, prompt.status());
  AddIgnoredFields(*request, context->headers);
  RespondJson(*context, {{"input_tokens", prompt->size()}});
}

void GatewayService::Infill(std::shared_ptr<Context> context) {
  auto read = ReadInfillRequest(context->request.body);
  context->request.DropBody();
  if (!read.ok()) return RespondError(*context, read.status());
  const auto model = ModelNamed(read->request.model);
  if (!model.ok()) return RespondError(*context, model.status());
  const Form form = {"infill-", MakeInfillAnswer, "input_prefix", "n_predict"};
  const absl::Status prepared = PrepareInfill(*context, *model, form, *read);
  if (!prepared.ok()) return RespondError(*context, prepared);
  StartGeneration(*context, std::move(read->request), *model, form, {});
}

absl::Status GatewayService::PrepareInfill(Context& context,
                                           const GeneratorInfo& info,
                                           const Form& form,
                                           InfillRequest& read) const {
  if (parts_.tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "/infill: this server has no tokenizer, see --model");
  }
  // The texts, one of them again as it is encoded, and the ids twice.
  const auto bytes = static_cast<int64_t>(
      read.input.bytes() + read.request.generation.constraint.source.size());
  FORETOKEN_RETURN_IF_ERROR(context.request.memory.Resize(
      bytes * (2 + kEncodingBytesPerTextByte +
               2 * static_cast<int64_t>(sizeof(TokenId)))));
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                             EncodeInfill(*parts_.tokenizer, read.input));
  read.input = {};
  GenerationRequest& generation = read.request.generation;
  if (!generation.ignore_eos) {
    for (const TokenId id : parts_.tokenizer->fim_tokens().ends()) {
      generation.stop_token_ids.push_back(id);
    }
  }
  return TakePrompt(std::move(prompt), "the input is", form, info,
                    read.request);
}

}  // namespace foretoken::gateway
