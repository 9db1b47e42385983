// Errors as OpenAI's API shows them:
//
//   {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
//
// Inside the gateway an error is a Status; the field at fault and OpenAI's code
// travel as payloads of it. Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_API_ERROR_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_API_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::gateway {

// Counted for a client that went away before its answer; never sent.
inline constexpr int kClientGone = 499;

// InvalidArgument about one field of the request: "<field>: <message>". `code`
// is OpenAI's, such as "unsupported_value"; empty: none.
absl::Status FieldError(absl::string_view field, absl::string_view message,
                        absl::string_view code = "");
// A field that this server does not serve, or not with this value.
absl::Status Unsupported(absl::string_view field,
                         absl::string_view message = "not supported");

// `status` with OpenAI's code.
absl::Status WithCode(absl::Status status, absl::string_view code);

struct ApiError {
  int http_status = 500;
  std::string type;  // "invalid_request_error", ...
  std::string message;
  std::string param;  // the field at fault; empty: none
  std::string code;   // empty: none
  // Milliseconds after which to try again; 0: no hint.
  int64_t retry_after_ms = 0;

  // The body of an answer, and the data of a frame of a stream.
  std::string Json() const;
};

// `status` is not OK. The message of an error that is ours alone (500) is not
// shown.
ApiError ToApiError(const absl::Status& status);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_API_ERROR_H_
