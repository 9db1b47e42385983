// gRPC client of a verifier: one Verify stream per session.
#ifndef FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_
#define FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_

#include <memory>

#include "common/rpc/channel.h"
#include "common/speculation/verifier_peer.h"

namespace foretoken::rpc {

// OnFailed reports the end of a stream, by its status or by a message out of
// turn. Thread-safe; sessions must be destroyed before the client.
std::shared_ptr<VerifierPeer> MakeVerifyClient(const Endpoint& endpoint);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_
