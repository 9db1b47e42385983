// CrestClient: the sessions of a CREST service behind gRPC: a Lookup stream
// each. The service keeps nothing of a request, so a session sends the end of
// its text with every look-up, in place of the whole text once.
//
// Mode `crest` with its `datastore`; errors as DraftClient's. Thread-safe;
// sessions must be gone before the client.
#ifndef FORETOKEN_COMMON_RPC_CREST_CLIENT_H_
#define FORETOKEN_COMMON_RPC_CREST_CLIENT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"
#include "common/rpc/channel.h"
#include "common/rpc/live_calls.h"
#include "foretoken/v1/crest.grpc.pb.h"

namespace foretoken::rpc {

class CrestClient final : public DraftSessions {
 public:
  explicit CrestClient(Endpoint endpoint);

  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

 private:
  class Session;

  const Endpoint endpoint_;
  const std::unique_ptr<v1::Crest::Stub> stub_;
  LiveCalls calls_;  // goes before the channel
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CREST_CLIENT_H_
