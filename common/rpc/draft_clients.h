// gRPC clients of the drafting services, with the same session interface as a
// service in this process. A session's listener receives the status that ended
// its stream, DataLoss for an invalid answer.
//
// Thread-safe; sessions and fetches must be destroyed before the client.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_
#define FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "common/rpc/channel.h"

namespace foretoken::rpc {

// The gRPC service of the drafting service of this name: `trie_drafter` is
// foretoken.v1.TrieDrafter.
std::string DraftServiceName(absl::string_view service);

// The client of the drafting service of this name (ModeInfo::service),
// whose method is Draft. Only `crest` has a contract of its own; it keeps no
// state per request, and every look-up carries the last tokens of the session.
// Open fails for a mode without a message.
std::shared_ptr<DraftSessions> MakeDraftClient(const Endpoint& endpoint,
                                               absl::string_view service);

// The shared phrases of a trie drafter.
std::shared_ptr<SharedPhrases> MakePhraseClient(const Endpoint& endpoint);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_CLIENTS_H_
