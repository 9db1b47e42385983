// POST /infill (llama.cpp's form): the text between a prefix and a suffix.
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_INFILL_REQUEST_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_INFILL_REQUEST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/text/tokenizer.h"
#include "services/gateway/core/api_request.h"

namespace foretoken::gateway {

inline constexpr size_t kMaxExtraFiles = 1024;

// The text around the gap, and other files of the repository.
struct InfillInput {
  struct File {
    std::string name;
    std::string text;
  };
  std::string prefix;
  std::string suffix;
  std::vector<File> extra;  // of the same repository

  // Size of all texts.
  size_t bytes() const;
};

struct InfillRequest {
  ApiRequest request;  // without a prompt
  InfillInput input;
};

// `body` is the body of the request. Where it names no sampling, llama.cpp's
// defaults hold: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05.
absl::StatusOr<InfillRequest> ReadInfillRequest(absl::string_view body);

// The prompt in the layout of llama.cpp. Text of the input never becomes a
// control token. Unimplemented for a model without the tokens.
absl::StatusOr<std::vector<TokenId>> EncodeInfill(const Tokenizer& tokenizer,
                                                  const InfillInput& input);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_INFILL_REQUEST_H_
