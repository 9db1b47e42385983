// VerifyClient: a verifier behind gRPC: a Verify stream for each session.
//
// A stream that ends, by its status or a message out of turn, comes to
// OnFailed. Thread-safe; sessions must be gone before the client.
#ifndef FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_
#define FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/channel.h"
#include "common/rpc/live_calls.h"
#include "common/speculation/verifier_peer.h"
#include "foretoken/v1/verifier.grpc.pb.h"

namespace foretoken::rpc {

class VerifyClient final : public VerifierPeer {
 public:
  explicit VerifyClient(Endpoint endpoint);

  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request,
      std::shared_ptr<VerifyListener> listener) override;
  void GetInfo(absl::Time deadline, OnInfo done) override;

 private:
  class Reader;
  class Session;

  const Endpoint endpoint_;
  const std::unique_ptr<v1::Verifier::Stub> stub_;
  LiveCalls calls_;  // goes before the channel
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_
