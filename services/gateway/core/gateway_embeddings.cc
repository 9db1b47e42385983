// /v1/embeddings.
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

}  // namespace

void GatewayService::Embeddings(std::shared_ptr<Context> context) {
  auto read = ReadEmbeddingsRequest(context->request.body);
  context->request.DropBody();
  if (!read.ok()) return RespondError(*context, read.status());
  const auto model = ModelNamed(read->request.model);
  if (!model.ok()) return RespondError(*context, model.status());
  const absl::Status served = CheckSize(*read, *model);
  if (!served.ok()) return RespondError(*context, served);
  ApiRequest& request = read->request;
  request.answer_bytes = EmbeddingAnswerBytes(request, model->embedding_size);
  // Vectors of two models do not belong into one answer.
  request.generation.numerics_fingerprint = model->numerics_fingerprint;
  StartGeneration(*context, std::move(request), *model,
                  {.id_prefix = "embd-",
                   .make_answer = MakeEmbeddingsAnswer,
                   .count = "input"},
                  {});
}

}  // namespace foretoken::gateway
