// The body of an error in the form of the API that was called: OpenAI's
// (api_error.h), or Anthropic's for /v1/messages and paths below it:
//
//   {"type": "error", "error": {"type": ..., "message": ...},
//    "request_id": ...}
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_ERROR_FORMS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_ERROR_FORMS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {

enum class ErrorForm : uint8_t { kOpenAi, kAnthropic };

ErrorForm ErrorFormOf(absl::string_view path);

// On one line, for bodies and for frames of streams. `request_id`: empty: none.
std::string ErrorBody(const ApiError& error, ErrorForm form,
                      absl::string_view request_id);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_ERROR_FORMS_H_
