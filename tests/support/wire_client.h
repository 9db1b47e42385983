// WireClient: the public API as one blocking call with its own messages, for
// tests and test clients that look at the messages, or forge them. Thread-safe.
#ifndef FORETOKEN_TESTS_SUPPORT_WIRE_CLIENT_H_
#define FORETOKEN_TESTS_SUPPORT_WIRE_CLIENT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::testing {

class WireClient {
 public:
  // `token`: the bearer token to send, or "".
  explicit WireClient(std::shared_ptr<grpc::Channel> channel,
                      std::string token = "");

  // Errors are those of CreateChannel and ReadToken.
  static absl::StatusOr<std::unique_ptr<WireClient>> Connect(
      const std::string& address, const rpc::ChannelOptions& options);

  // Calls `on_delta` with each delta, in order, and cancels the call if it
  // returns false. Returns the last message, or the status from the
  // server; DataLoss for a stream that ends with OK but without one.
  absl::StatusOr<v1::GenerateResult> Generate(
      const v1::GenerateRequest& request, absl::Time deadline,
      absl::FunctionRef<bool(const v1::GenerateDelta&)> on_delta) const;

  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo(
      absl::Time deadline) const;

  // For calls that have no method here.
  v1::Generation::Stub& stub() const { return *stub_; }

 private:
  const std::unique_ptr<v1::Generation::Stub> stub_;
  const std::string token_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_WIRE_CLIENT_H_
