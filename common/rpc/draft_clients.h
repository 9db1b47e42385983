// The drafting services behind gRPC, as the sessions that a service in this
// process also has. What ends a stream comes to the listener of its session, an
// invalid answer as DataLoss.
//
// Thread-safe; sessions and fetches must be gone before the client.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_
#define FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "common/rpc/channel.h"

namespace foretoken::rpc {

// The client of the drafting service of this name (ModeInfo::service):
// `trie_drafter` is foretoken.v1.TrieDrafter, and its method is Draft. Only
// `crest` has a contract of its own; it keeps no state of a request, and every
// look-up carries the end of the session's text. Open fails for a mode that the
// message does not know.
std::shared_ptr<DraftSessions> MakeDraftClient(const Endpoint& endpoint,
                                               absl::string_view service);

// The shared phrases of a trie drafter.
std::shared_ptr<SharedPhrases> MakePhraseClient(const Endpoint& endpoint);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_
