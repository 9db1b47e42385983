// SessionServices: the drafting services that this orchestrator was given, as
// sources over their sessions. Breakers are shared by all requests.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_SESSION_SERVICES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_SESSION_SERVICES_H_

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "services/orchestrator/core/draft_peer.h"
#include "services/orchestrator/core/modes.h"
#include "services/orchestrator/core/served_source.h"

namespace foretoken::orchestrator {

struct SessionServicesOptions {
  // Those that are there, in this process or behind a network. Shared with
  // their owner, where that is not the orchestrator alone.
  std::shared_ptr<DraftSessions> trie_drafter;
  std::shared_ptr<DraftSessions> draft_worker;
  std::shared_ptr<DraftSessions> crest;
  std::shared_ptr<SharedPhrases> phrases;  // the trie drafter's
  std::string crest_datastore;             // of requests that name none
  CircuitBreakerOptions breaker;
  // Phrases that a draft worker's session starts with.
  int32_t warm_phrases = 2048;
};

class SessionServices final : public DraftServices {
 public:
  // Makes what hears of the states of a service's breaker.
  using MakeListener =
      std::function<CircuitBreaker::Listener(const std::string& service)>;

  // `tokenizer_fingerprint`: raw, empty if not known.
  SessionServices(const SessionServicesOptions& options,
                  std::string tokenizer_fingerprint,
                  const MakeListener& make_listener = nullptr,
                  Clock clock = SystemClock());

  bool has_trie_drafter() const override { return trie_drafter_ != nullptr; }
  bool has_draft_worker() const override { return draft_worker_ != nullptr; }
  bool has_crest() const override { return crest_ != nullptr; }

  std::unique_ptr<DraftSource> TrieDrafter(DrafterId id,
                                           const Mode& mode) override;
  std::unique_ptr<DraftSource> DraftWorker(DrafterId id,
                                           const Mode& mode) override;
  std::unique_ptr<DraftSource> PhraseKeeper(const Mode& mode) override;
  std::unique_ptr<DraftSource> Crest(const std::string& datastore) override;

 private:
  ServedSourceOptions Source(DrafterId id, const Mode& mode) const;

  const SessionServicesOptions options_;
  const std::string tokenizer_fingerprint_;
  std::unique_ptr<DraftPeer> trie_drafter_;
  std::unique_ptr<DraftPeer> draft_worker_;
  std::unique_ptr<DraftPeer> crest_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_SESSION_SERVICES_H_
