// GenerationClient: the public API as one blocking call, for command lines and
// tests. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_GENERATION_CLIENT_H_
#define FORETOKEN_COMMON_RPC_GENERATION_CLIENT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/speculation/generation.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::rpc {

class GenerationClient {
 public:
  // `token`: the bearer token to send, or "".
  explicit GenerationClient(std::shared_ptr<grpc::Channel> channel,
                            std::string token = "");

  // Errors are those of CreateChannel and ReadToken.
  static absl::StatusOr<std::unique_ptr<GenerationClient>> Connect(
      const std::string& address, const ChannelOptions& options);

  // Calls `on_delta` with each delta, in order, and cancels the call if it
  // returns false. Returns the last message, or the status from the
  // server; DataLoss for a stream that ends with OK but without one.
  absl::StatusOr<v1::GenerateResult> Generate(
      const v1::GenerateRequest& request, absl::Time deadline,
      absl::FunctionRef<bool(const v1::GenerateDelta&)> on_delta) const;

  // The same with plain structs; an error of `on_delta` cancels the call and is
  // returned.
  absl::StatusOr<GenerationSummary> Generate(
      const GenerationRequest& request,
      absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta) const;

  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo(
      absl::Time deadline) const;

  v1::Generation::Stub& stub() const { return *stub_; }

 private:
  const std::unique_ptr<v1::Generation::Stub> stub_;
  const std::string token_;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_GENERATION_CLIENT_H_
