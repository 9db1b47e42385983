#include "services/gateway/core/embeddings_request.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/prompt_fields.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {
namespace {

constexpr char kField[] = "input";
constexpr size_t kMaxWordBytes = 16;  // of encoding_format and pooling
constexpr int64_t kMaxDimensions = int64_t{1} << 16;

// Upper bound of an answer's bytes around a vector.
constexpr int64_t kAroundBytes = 96;

absl::Status CheckInputs(const std::vector<Prompt>& inputs) {
  size_t bytes = 0, tokens = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* const text = std::get_if<std::string>(&inputs[i]);
    const size_t size = text != nullptr
                            ? text->size()
                            : std::get<std::vector<TokenId>>(inputs[i]).size();
    (text != nullptr ? bytes : tokens) += size;
    if (size > 0) continue;
    return FieldError(
        inputs.size() == 1 ? kField : absl::StrCat(kField, "[", i, "]"),
        "is empty", "invalid_value");
  }
  if (bytes > kMaxEmbeddingBytes) {
    return FieldError(
        kField,
        absl::StrCat("the texts have ", bytes, " bytes together, want at most ",
                     kMaxEmbeddingBytes),
        "invalid_value");
  }
  if (tokens > kMaxEmbeddingTokens) {
    return FieldError(kField,
                      absl::StrCat(tokens, " token ids together, want at most ",
                                   kMaxEmbeddingTokens),
                      "invalid_value");
  }
  return absl::OkStatus();
}

void ReadInputs(RequestFields& fields, ApiRequest& request) {
  auto inputs = ReadPrompts(fields.Find(kField), kField, kMaxEmbeddingInputs);
  if (!inputs.ok()) return fields.Fail(inputs.status());
  const absl::Status checked = CheckInputs(*inputs);
  if (!checked.ok()) return fields.Fail(checked);
  request.prompts = *std::move(inputs);
}

void ReadFormat(RequestFields& fields, ApiRequest& request) {
  const auto format = fields.Text("encoding_format", kMaxWordBytes);
  if (!format.has_value() || *format == "float") return;
  request.base64 = *format == "base64";
  if (request.base64) return;
  fields.Fail(
      FieldError("encoding_format", "want float or base64", "invalid_value"));
}

void ReadPooling(RequestFields& fields, ApiRequest& request) {
  Pooling& pooling = request.generation.pooling;
  pooling = Pooling::kModel;
  const auto given = fields.Text("pooling", kMaxWordBytes);
  if (!given.has_value()) return;
  for (const Pooling each : {Pooling::kMean, Pooling::kLast}) {
    if (*given != PoolingName(each)) continue;
    pooling = each;
    return;
  }
  fields.Fail(FieldError("pooling", "want mean or last", "invalid_value"));
}

}  // namespace

absl::StatusOr<EmbeddingsRequest> ReadEmbeddingsRequest(
    absl::string_view body) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json json,
                             ParseJson(body, kRequestJsonLimits));
  RequestFields fields(json);
  EmbeddingsRequest read;
  ApiRequest& request = read.request;
  request.model = fields.Text("model", kMaxModelBytes).value_or("");
  request.max_tokens = 0;
  request.own_prefixes = false;
  if (json.is_object()) ReadInputs(fields, request);
  ReadFormat(fields, request);
  ReadPooling(fields, request);
  read.dimensions = fields.Int("dimensions", {1, kMaxDimensions});
  if (fields.Find("user") != nullptr) request.ignored_fields = {"user"};
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return read;
}

int64_t EmbeddingAnswerBytes(const ApiRequest& request, int64_t size) {
  return request.choices() *
         (kAroundBytes + size * (request.base64 ? kEmbeddingBase64Bytes
                                                : kEmbeddingFloatBytes));
}

}  // namespace foretoken::gateway
