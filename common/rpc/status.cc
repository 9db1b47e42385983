#include "common/rpc/status.h"

#include <optional>
#include <string>
#include <utility>

#include "common/base/stopping.h"
#include "foretoken/v1/status_details.pb.h"

namespace foretoken::rpc {
namespace {

constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

v1::RetryInfo ToProto(absl::Duration delay) {
  v1::RetryInfo info;
  const int64_t seconds = absl::ToInt64Seconds(delay);
  info.mutable_retry_delay()->set_seconds(seconds);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(delay - absl::Seconds(seconds))));
  return info;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message(status.message());
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::optional<absl::Duration> delay = RetryAfter(status);
  if (!delay.has_value()) return grpc::Status(code, message);
  v1::StatusDetails details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(message);
  auto* any = details.add_details();
  any->set_type_url(kRetryInfoUrl);
  any->set_value(ToProto(*delay).SerializeAsString());
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  v1::StatusDetails details;
  // Details in an unknown format are ignored; code and message remain.
  if (!details.ParseFromString(status.error_details())) return result;
  for (const auto& any : details.details()) {
    v1::RetryInfo info;
    if (any.type_url() != kRetryInfoUrl || !info.ParseFromString(any.value())) {
      continue;
    }
    result = WithRetryAfter(std::move(result),
                            absl::Seconds(info.retry_delay().seconds()) +
                                absl::Nanoseconds(info.retry_delay().nanos()));
  }
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
