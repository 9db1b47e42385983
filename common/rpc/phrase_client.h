// PhraseClient: the shared phrases of a trie drafter behind gRPC. Thread-safe;
// fetches must be gone before the client.
#ifndef FORETOKEN_COMMON_RPC_PHRASE_CLIENT_H_
#define FORETOKEN_COMMON_RPC_PHRASE_CLIENT_H_

#include <memory>

#include "common/drafting/shared_phrases.h"
#include "common/rpc/channel.h"
#include "common/rpc/live_calls.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"

namespace foretoken::rpc {

class PhraseClient final : public SharedPhrases {
 public:
  explicit PhraseClient(Endpoint endpoint);

  std::unique_ptr<Fetch> GetPhrases(const PhraseQuery& query,
                                    Done done) override;

 private:
  class Call;
  class CallFetch;

  const Endpoint endpoint_;
  const std::unique_ptr<v1::TrieDrafter::Stub> stub_;
  LiveCalls calls_;  // goes before the channel
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_PHRASE_CLIENT_H_
