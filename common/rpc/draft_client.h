// DraftClient: the sessions of a drafting service behind gRPC: a Draft stream
// each.
//
// What ends a stream comes to its listener, an answer that makes no sense as
// DataLoss. Thread-safe; sessions must be gone before the client.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_CLIENT_H_
#define FORETOKEN_COMMON_RPC_DRAFT_CLIENT_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"
#include "common/rpc/bidi_call.h"
#include "common/rpc/channel.h"
#include "foretoken/v1/drafting.pb.h"

namespace foretoken::rpc {

class DraftClient final : public DraftSessions {
 public:
  using Call = BidiCall<v1::DraftRequest, v1::DraftResponse>;

  // `method`: Draft of a stub on the endpoint's channel.
  DraftClient(Endpoint endpoint, Call::Method method)
      : endpoint_(std::move(endpoint)), method_(std::move(method)) {}

  // Fails for a mode that the message does not know.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

 private:
  class Session;

  const Endpoint endpoint_;
  const Call::Method method_;
  LiveCalls calls_;  // goes before the channel
};

// Of a service with a Draft method: MakeDraftClient<v1::DraftWorker>(endpoint).
template <typename Service>
std::unique_ptr<DraftClient> MakeDraftClient(Endpoint endpoint) {
  const std::shared_ptr<typename Service::Stub> stub =
      Service::NewStub(endpoint.channel);
  return std::make_unique<DraftClient>(
      std::move(endpoint), [stub](grpc::ClientContext* context,
                                  DraftClient::Call::Reactor* reactor) {
        stub->async()->Draft(context, reactor);
      });
}

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_CLIENT_H_
