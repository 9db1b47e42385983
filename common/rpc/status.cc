#include "common/rpc/status.h"

#include <optional>
#include <string>
#include <utility>

#include "common/base/stopping.h"
#include "foretoken/v1/status_details.pb.h"

namespace foretoken::rpc {
namespace {

constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kDomain[] = "foretoken";
constexpr char kStoppingReason[] = "STOPPING";

// google.protobuf.Duration: whole seconds and the nanoseconds that remain.
v1::RetryInfo ToProto(absl::Duration delay) {
  v1::RetryInfo info;
  const int64_t seconds = absl::ToInt64Seconds(delay);
  info.mutable_retry_delay()->set_seconds(seconds);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(delay - absl::Seconds(seconds))));
  return info;
}

template <typename Message>
void Add(const char* url, const Message& message, v1::StatusDetails* details) {
  v1::StatusDetail* const any = details->add_details();
  any->set_type_url(url);
  any->set_value(message.SerializeAsString());
}

// Adds to `status` what a detail of a known type means; other types are
// ignored, since a proxy may add its own.
void Apply(const v1::StatusDetail& any, absl::Status& status) {
  v1::RetryInfo retry;
  v1::ErrorInfo error;
  if (any.type_url() == kRetryInfoUrl && retry.ParseFromString(any.value())) {
    status = WithRetryAfter(std::move(status),
                            absl::Seconds(retry.retry_delay().seconds()) +
                                absl::Nanoseconds(retry.retry_delay().nanos()));
  }
  if (any.type_url() == kErrorInfoUrl && error.ParseFromString(any.value()) &&
      error.domain() == kDomain && error.reason() == kStoppingReason) {
    status = MarkStopping(std::move(status));
  }
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message(status.message());
  // Abseil's codes have gRPC's numbers.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  v1::StatusDetails details;
  if (const std::optional<absl::Duration> delay = RetryAfter(status)) {
    Add(kRetryInfoUrl, ToProto(*delay), &details);
  }
  if (IsStopping(status)) {
    v1::ErrorInfo info;
    info.set_reason(kStoppingReason);
    info.set_domain(kDomain);
    Add(kErrorInfoUrl, info, &details);
  }
  // Details are google.rpc.Status in the trailer grpc-status-details-bin, which
  // repeats code and message.
  if (details.details().empty()) return grpc::Status(code, message);
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(message);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  v1::StatusDetails details;
  // Details in an unknown format are ignored; code and message remain.
  if (!details.ParseFromString(status.error_details())) return result;
  for (const v1::StatusDetail& any : details.details()) Apply(any, result);
  return result;
}

absl::Status StatusOfCall(const grpc::Status& status, bool cancelled,
                          absl::Duration left) {
  absl::Status result = FromGrpcStatus(status);
  if (cancelled || !absl::IsCancelled(result)) return result;
  if (left >= kDeadlineSlack) return StoppingError("the server");
  return absl::DeadlineExceededError("the call's deadline has passed");
}

}  // namespace foretoken::rpc
