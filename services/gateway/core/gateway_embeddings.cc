// /v1/embeddings.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/generation/prompt_tokens.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/embeddings_request.h"
#include "services/gateway/core/gateway_service.h"

namespace foretoken::gateway {
namespace {

absl::Status CheckSize(const EmbeddingsRequest& read,
                       const GeneratorInfo& info) {
  if (info.embedding_size == 0) {
    return absl::UnimplementedError(
        "/v1/embeddings: the model's server makes no embeddings");
  }
  if (read.dimensions.value_or(info.embedding_size) == info.embedding_size) {
    return absl::OkStatus();
  }
  // A part of the numbers means something only to models that were trained so.
  return Unsupported("dimensions", absl::StrCat("want ", info.embedding_size,
                                                ", as many as this model has"));
}

// Refuses a batch with more tokens than the caller's quota of a minute: some of
// its inputs would wait for the next minute while finished vectors take memory.
// A single input may have more; it uses up the whole quota.
absl::Status CheckTokens(const ApiRequest& request, const Caller& caller) {
  const int64_t quota = caller.tokens_per_minute;
  if (quota == 0 || request.prompts.size() == 1) return absl::OkStatus();
  int64_t tokens = 0;
  for (const Prompt& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    tokens +=
        text != nullptr
            ? EstimatedTokens(text->size(), 0)
            : EstimatedTokens(0, std::get<std::vector<TokenId>>(prompt).size());
  }
  if (tokens <= quota) return absl::OkStatus();
  return FieldError("input",
                    absl::StrCat("the inputs have about ", tokens,
                                 " tokens together, over the ", quota,
                                 " that the caller has in a minute"),
                    "invalid_value");
}

}  // namespace

void GatewayService::Embeddings(std::shared_ptr<Context> context) {
  auto read = ReadEmbeddingsRequest(context->request.body);
  context->request.DropBody();
  if (!read.ok()) return RespondError(*context, read.status());
  const auto model = ModelNamed(read->request.model);
  if (!model.ok()) return RespondError(*context, model.status());
  absl::Status served = CheckSize(*read, *model);
  if (served.ok()) served = CheckTokens(read->request, context->caller);
  if (!served.ok()) return RespondError(*context, served);
  ApiRequest& request = read->request;
  request.answer_bytes = EmbeddingAnswerBytes(request, model->embedding_size);
  // Vectors of two models do not belong into one answer.
  request.generation.numerics_fingerprint = model->numerics_fingerprint;
  StartGeneration(*context, std::move(request), *model,
                  {.id_prefix = "embd-",
                   .make_answer = MakeEmbeddingsAnswer,
                   .count = "input",
                   .choices = "inputs"},
                  {});
}

}  // namespace foretoken::gateway
