#include "common/rpc/status.h"

#include <algorithm>

#include "foretoken/v1/status_details.pb.h"

namespace foretoken::rpc {
namespace {

constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
// Larger hints are capped: they are a mistake of the sender.
constexpr absl::Duration kMaxRetryDelay = absl::Hours(1);

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  const absl::Duration bounded =
      std::clamp(delay, absl::Milliseconds(1), kMaxRetryDelay);
  v1::RetryInfo info;
  const int64_t seconds = absl::ToInt64Seconds(bounded);
  info.mutable_retry_delay()->set_seconds(seconds);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(bounded - absl::Seconds(seconds))));
  status.SetPayload(kRetryInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfoUrl);
  v1::RetryInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  const absl::Duration delay = absl::Seconds(info.retry_delay().seconds()) +
                               absl::Nanoseconds(info.retry_delay().nanos());
  return std::clamp(delay, absl::ZeroDuration(), kMaxRetryDelay);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message(status.message());
  const auto code = static_cast<grpc::StatusCode>(status.code());
  v1::StatusDetails details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    auto* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(value));
  });
  if (details.details().empty()) return grpc::Status(code, message);
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
    if (any.type_url() != kRetryInfoUrl) continue;
    result.SetPayload(kRetryInfoUrl, absl::Cord(any.value()));
  }
  return result;
}

}  // namespace foretoken::rpc
