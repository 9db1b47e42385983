// POST /v1/embeddings (OpenAI's form). Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_EMBEDDINGS_REQUEST_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_EMBEDDINGS_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/gateway/core/api_request.h"

namespace foretoken::gateway {

// Bounds of one request. The context of the model bounds each input besides.
inline constexpr size_t kMaxEmbeddingInputs = 2048;
inline constexpr size_t kMaxEmbeddingTokens = size_t{1} << 20;  // as ids
inline constexpr size_t kMaxEmbeddingBytes = size_t{4} << 20;   // as texts

// Upper bounds of a number's bytes in an answer: with its comma
// ("-1.17549435e-38,"), and in base64, rounded up.
inline constexpr int64_t kEmbeddingFloatBytes = 16;
inline constexpr int64_t kEmbeddingBase64Bytes = 6;

struct EmbeddingsRequest {
  // Its prompts are the inputs, and max_tokens is 0.
  ApiRequest request;
  std::optional<int64_t> dimensions;  // that are asked for
};

// `body` is the body of the request.
absl::StatusOr<EmbeddingsRequest> ReadEmbeddingsRequest(absl::string_view body);

// Maximum bytes that an answer takes for embeddings of `size` numbers.
int64_t EmbeddingAnswerBytes(const ApiRequest& request, int64_t size);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_EMBEDDINGS_REQUEST_H_
