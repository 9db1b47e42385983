// A verifier behind gRPC: a Verify stream for each session.
#ifndef FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_
#define FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_

#include <memory>

#include "common/rpc/channel.h"
#include "common/speculation/verifier_peer.h"

namespace foretoken::rpc {

// A stream that ends, by its status or a message out of turn, comes to
// OnFailed. Thread-safe; sessions must be gone before the client.
std::shared_ptr<VerifierPeer> MakeVerifyClient(const Endpoint& endpoint);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_VERIFY_CLIENT_H_
