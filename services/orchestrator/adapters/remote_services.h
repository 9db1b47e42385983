// RemoteServices: the drafting services that this orchestrator was given, as
// DraftServices. Connections, breakers and stubs are shared by all requests.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_SERVICES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_SERVICES_H_

#include <memory>
#include <optional>
#include <string>

#include "common/metrics/registry.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "foretoken/v1/draft_worker.grpc.pb.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"
#include "services/orchestrator/adapters/draft_peer.h"
#include "services/orchestrator/core/modes.h"
#include "services/orchestrator/core/session_source.h"

namespace foretoken::orchestrator {

struct RemoteServicesOptions {
  // Those that are there.
  std::optional<DraftEndpoint> trie_drafter;
  std::optional<DraftEndpoint> draft_worker;
  std::optional<DraftEndpoint> crest;
  // The trie drafter's sessions where it is in this process, too: rounds are
  // calls then. The endpoint serves its shared pool.
  std::optional<DraftServiceHere> trie_here;
  std::string crest_datastore;  // of requests that name none
  CircuitBreakerOptions breaker;
  // Phrases that a draft worker's session starts with.
  int32_t warm_phrases = 2048;
};

class RemoteServices final : public DraftServices {
 public:
  // `tokenizer_fingerprint`: raw, empty if not known. `registry` must outlive
  // the object.
  RemoteServices(const RemoteServicesOptions& options,
                 std::string tokenizer_fingerprint,
                 metrics::Registry& registry);

  bool has_trie_drafter() const override { return trie_peer_ != nullptr; }
  bool has_draft_worker() const override { return worker_peer_ != nullptr; }
  bool has_crest() const override { return crest_peer_ != nullptr; }

  std::unique_ptr<DraftSource> TrieDrafter(DrafterId id,
                                           const Mode& mode) override;
  std::unique_ptr<DraftSource> DraftWorker(DrafterId id,
                                           const Mode& mode) override;
  std::unique_ptr<DraftSource> PhraseKeeper(const Mode& mode) override;
  std::unique_ptr<DraftSource> Crest(const std::string& datastore) override;

 private:
  const RemoteServicesOptions options_;
  const std::string tokenizer_fingerprint_;
  std::unique_ptr<v1::TrieDrafter::Stub> trie_;
  std::unique_ptr<v1::DraftWorker::Stub> worker_;
  std::unique_ptr<v1::Crest::Stub> crest_;
  std::unique_ptr<DraftPeer> trie_peer_;
  std::unique_ptr<DraftPeer> worker_peer_;
  std::unique_ptr<DraftPeer> crest_peer_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_SERVICES_H_
