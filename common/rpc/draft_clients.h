// The drafting services behind gRPC, as the sessions that a service in this
// process also has. What ends a stream comes to the listener of its session, an
// invalid answer as DataLoss.
//
// Thread-safe; sessions and fetches must be gone before the client.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_
#define FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_

#include <memory>

#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "common/rpc/bidi_call.h"
#include "common/rpc/channel.h"
#include "foretoken/v1/drafting.pb.h"

namespace foretoken::rpc {

using DraftMethod = BidiCall<v1::DraftRequest, v1::DraftResponse>::Method;

// `method`: Draft of a stub on the endpoint's channel. Open fails for a mode
// that the message does not know.
std::shared_ptr<DraftSessions> MakeDraftClient(const Endpoint& endpoint,
                                               DraftMethod method);

// The client of a service with a Draft method:
// MakeDraftClient<v1::DraftWorker>(endpoint).
template <typename Service>
std::shared_ptr<DraftSessions> MakeDraftClient(const Endpoint& endpoint) {
  const std::shared_ptr<typename Service::Stub> stub =
      Service::NewStub(endpoint.channel);
  return MakeDraftClient(endpoint, [stub](auto* context, auto* reactor) {
    stub->async()->Draft(context, reactor);
  });
}

// Of a CREST service: drafts mode `crest` with its `datastore`. The service
// keeps no state of a request: every look-up carries the end of the session's
// text.
std::shared_ptr<DraftSessions> MakeCrestClient(const Endpoint& endpoint);

// The shared phrases of a trie drafter.
std::shared_ptr<SharedPhrases> MakePhraseClient(const Endpoint& endpoint);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_
