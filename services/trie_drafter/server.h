// The trie drafter's gRPC service: streams to sessions, phrases, metrics.
//
// All work runs on a bounded pool of workers, never on gRPC's threads.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_SERVER_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/worker_pool.h"
#include "common/drafting/observed_draft_sessions.h"
#include "common/drafting/queued_draft_sessions.h"
#include "common/metrics/registry.h"
#include "common/rpc/draft_stream.h"
#include "common/rpc/server.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"
#include "services/trie_drafter/adapters/redis_warm_store.h"
#include "services/trie_drafter/adapters/trie_metrics.h"
#include "services/trie_drafter/core/trie_sessions.h"

namespace foretoken::trie_drafter {

struct TrieServerOptions {
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: accepts any
  rpc::StreamOptions streams;
  int32_t threads = 0;  // drafting threads; 0: one per core
};

class TrieDrafterServer final : public v1::TrieDrafter::CallbackService,
                                public rpc::Servable {
 public:
  // Makes the server's warm store, or null for none; the store reports to the
  // observer.
  using MakeStore =
      std::function<std::unique_ptr<WarmStore>(WarmStoreObserver&)>;

  // `prior` may be null. `registry` must outlive the server.
  TrieDrafterServer(const TrieServerOptions& options, const TrieOptions& core,
                    std::shared_ptr<const StaticPrior> prior,
                    const MakeStore& make_store, metrics::Registry& registry);
  ~TrieDrafterServer() override;

  rpc::DraftStreams::Reactor* Draft(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetPhrases(
      grpc::CallbackServerContext* context,
      const v1::GetPhrasesRequest* request,
      v1::GetPhrasesResponse* response) override;

  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override {
    return "foretoken.v1.TrieDrafter";
  }
  void BeginDrain() override;
  bool Idle() const override;
  void EndAll() override;

  // For callers in the same process, which bypass the streams.
  DraftSessions& drafts() { return drafts_; }
  TrieSessions& sessions() { return sessions_; }

 private:
  // Runs `work` on a worker and ends the call with its status.
  grpc::ServerUnaryReactor* RunCall(grpc::CallbackServerContext* context,
                                    std::function<absl::Status()> work);

  const TrieServerOptions options_;
  TrieMetrics metrics_;
  const std::unique_ptr<WarmStore> store_;
  TrieSessions sessions_;
  std::atomic<int> calls_{0};  // running and waiting, without streams
  std::atomic<bool> draining_{false};
  WorkerPool workers_;  // its threads use all of the above
  QueuedDraftSessions queued_;
  ObservedDraftSessions drafts_;
  rpc::DraftStreams streams_;
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_SERVER_H_
