#include "tests/support/wire_client.h"

#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"

namespace foretoken::testing {

WireClient::WireClient(std::shared_ptr<grpc::Channel> channel,
                       std::string token)
    : stub_(v1::Generation::NewStub(channel)), token_(std::move(token)) {}

absl::StatusOr<std::unique_ptr<WireClient>> WireClient::Connect(
    const std::string& address, const rpc::ChannelOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(auto channel,
                             rpc::CreateChannel(address, options));
  FORETOKEN_ASSIGN_OR_RETURN(const rpc::BearerToken token,
                             rpc::ReadToken(options));
  return std::make_unique<WireClient>(std::move(channel), token.Get());
}

absl::StatusOr<v1::GenerateResult> WireClient::Generate(
    const v1::GenerateRequest& request, absl::Time deadline,
    absl::FunctionRef<bool(const v1::GenerateDelta&)> on_delta) const {
  grpc::ClientContext context;
  rpc::PrepareCall(context, deadline, token_);
  const std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader =
      stub_->Generate(&context, request);
  std::optional<v1::GenerateResult> result;
  v1::GenerateResponse response;
  bool cancelled = false;
  while (reader->Read(&response)) {
    if (response.has_result()) {
      result = std::move(*response.mutable_result());
    } else if (!on_delta(response.delta())) {
      cancelled = true;
      context.TryCancel();
    }
  }
  const grpc::Status end = reader->Finish();
  FORETOKEN_RETURN_IF_ERROR(
      rpc::StatusOfCall(end, cancelled, deadline - MonotonicNow()));
  if (!result.has_value()) {
    return absl::DataLossError("the stream ended without a last message");
  }
  return *std::move(result);
}

absl::StatusOr<v1::GetModelInfoResponse> WireClient::GetModelInfo(
    absl::Time deadline) const {
  grpc::ClientContext context;
  rpc::PrepareCall(context, deadline, token_);
  v1::GetModelInfoResponse response;
  FORETOKEN_RETURN_IF_ERROR(rpc::FromGrpcStatus(
      stub_->GetModelInfo(&context, v1::GetModelInfoRequest(), &response)));
  return response;
}

}  // namespace foretoken::testing
