#include "services/gateway/core/api_error.h"

#include <algorithm>
#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/base/json.h"
#include "common/base/retry_after.h"

namespace foretoken::gateway {
namespace {

constexpr char kFieldPayload[] = "foretoken/field";
constexpr char kCodePayload[] = "foretoken/code";
constexpr char kContextCode[] = "context_length_exceeded";
// What the orchestrator says about requests over the context. Clients, too,
// know the words, which are OpenAI's.
constexpr char kContextWords[] = "this model's maximum context length is";
// Hint of a refusal without one of its own.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);

std::string Payload(const absl::Status& status, absl::string_view url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

// Fields that the orchestrator checks, as its messages name them first.
constexpr std::array<absl::string_view, 17> kFields = {"prompt",
                                                       "max_tokens",
                                                       "stop_token_ids",
                                                       "stop",
                                                       "temperature",
                                                       "top_k",
                                                       "top_p",
                                                       "min_p",
                                                       "repetition_penalty",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "logit_bias",
                                                       "min_tokens",
                                                       "logprobs",
                                                       "cache_scope",
                                                       "speculation",
                                                       "pooling"};

// The field that a message of the orchestrator or of a chat template begins
// with: "max_tokens is 9, want ...", "messages[1].content: ..."; "" for none. A
// prompt's text is the field "text" there.
std::string FieldOf(absl::string_view message) {
  // Up to the first space or colon: messages begin with the field's name.
  const absl::string_view word = message.substr(0, message.find_first_of(" :"));
  if (absl::StartsWith(word, "messages[") || absl::StartsWith(word, "tools[")) {
    return std::string(word);
  }
  if (word == "text") return "prompt";
  // Only known names: other messages may begin with any word.
  const bool known =
      std::find(kFields.begin(), kFields.end(), word) != kFields.end();
  return known ? std::string(word) : "";
}

struct Kind {
  int http_status;
  const char* type;
};

Kind KindOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    // kFailedPrecondition and kUnimplemented are the request's fault here:
    // another try would fail the same way.
    case absl::StatusCode::kUnimplemented:
      return {400, "invalid_request_error"};
    case absl::StatusCode::kUnauthenticated:
      return {401, "authentication_error"};
    case absl::StatusCode::kPermissionDenied:
      return {403, "permission_error"};
    case absl::StatusCode::kNotFound:
      return {404, "not_found_error"};
    // 408, which OpenAI's SDKs repeat by themselves.
    case absl::StatusCode::kDeadlineExceeded:
      return {408, "timeout_error"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error"};
    // 503 for all that may succeed on another try, aborted requests included.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
      return {503, "service_unavailable_error"};
    default:
      return {500, "server_error"};
  }
}

}  // namespace

absl::Status FieldError(absl::string_view field, absl::string_view message,
                        absl::string_view code) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
  // As a payload: the message is for people, the field for programs.
  status.SetPayload(kFieldPayload, absl::Cord(field));
  return code.empty() ? status : WithCode(std::move(status), code);
}

absl::Status Unsupported(absl::string_view field, absl::string_view message) {
  return FieldError(field, message, "unsupported_parameter");
}

absl::Status WithCode(absl::Status status, absl::string_view code) {
  status.SetPayload(kCodePayload, absl::Cord(code));
  return status;
}

std::string ApiError::Json() const {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? foretoken::Json(nullptr) : foretoken::Json(text);
  };
  return DumpJson({{"error",
                    {{"message", message},
                     {"type", type},
                     {"param", or_null(param)},
                     {"code", or_null(code)}}}});
}

ApiError ToApiError(const absl::Status& status) {
  const Kind kind = KindOf(status.code());
  ApiError error;
  error.http_status = kind.http_status;
  error.type = kind.type;
  error.code = Payload(status, kCodePayload);
  error.param = Payload(status, kFieldPayload);
  // Details of our own faults stay in the log.
  if (kind.http_status == 500) {
    error.message = "internal error";
    return error;
  }
  error.message = std::string(status.message());
  // Errors of the orchestrator name the field in their text alone.
  if (kind.http_status == 400 && error.param.empty()) {
    error.param = FieldOf(status.message());
  }
  if (kind.http_status == 400 && error.code.empty() &&
      absl::StrContains(error.message, kContextWords)) {
    error.code = kContextCode;
  }
  // Hints are sent only where another try makes sense.
  if (kind.http_status == 429 || kind.http_status == 503) {
    const absl::Duration wait = RetryAfter(status).value_or(kRetryAfter);
    // A hint of 0 would be read as none.
    error.retry_after_ms =
        std::max<int64_t>(1, absl::ToInt64Milliseconds(wait));
  }
  return error;
}

}  // namespace foretoken::gateway
