// DraftServices: the drafting services that an orchestrator has, by the names
// of the mode table (ModeInfo::service), as sources over their sessions.
// Breakers are shared by all requests. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_SERVICES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_SERVICES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/drafters/circuit_breaker.h"
#include "services/orchestrator/core/drafters/draft_peer.h"
#include "services/orchestrator/core/drafters/draft_replicas.h"
#include "services/orchestrator/core/drafters/draft_source.h"
#include "services/orchestrator/core/drafters/served_source.h"

namespace foretoken::orchestrator {

struct DraftServicesOptions {
  // The services that are available, with their first replicas, if known, by
  // name: in this process or behind a network.
  std::map<std::string, std::map<std::string, DraftEndpoint>> services;
  std::string crest_datastore;  // of requests that name none
  CircuitBreakerOptions breaker;
  // Phrases that a draft worker's session starts with.
  int32_t warm_phrases = 2048;
};

class DraftServices {
 public:
  // Makes the listener of a service's breaker.
  using MakeListener =
      std::function<CircuitBreaker::Listener(const std::string& service)>;

  // `tokenizer_fingerprint`: raw, empty if not known.
  DraftServices(const DraftServicesOptions& options,
                std::string tokenizer_fingerprint,
                const MakeListener& make_listener = nullptr,
                Clock clock = MonotonicClock());

  bool Has(absl::string_view service) const {
    return services_.find(service) != services_.end();
  }
  // The replicas of a service, which must be available.
  DraftReplicas& Replicas(absl::string_view service);

  // Whether a source's request was cancelled; null: it never is.
  using Cancelled = std::function<bool()>;
  // A source for a new request, on the mode's service, which must be available.
  std::unique_ptr<DraftSource> Source(const Mode& mode,
                                      Cancelled cancelled = nullptr);
  // A source for a new request in mode `auto`, on the service of a mode whose
  // drafts it uses, which must be available.
  std::unique_ptr<DraftSource> PartOfAuto(const ModeInfo& part,
                                          Cancelled cancelled = nullptr);
  // A source that stores the phrases a draft worker's pool gains; its drafts()
  // is false. Null without a trie drafter.
  std::unique_ptr<DraftSource> PhraseKeeper(const Mode& mode);

 private:
  ServedSourceOptions SourceOptions(const Mode& mode) const;

  const DraftServicesOptions options_;
  const std::string tokenizer_fingerprint_;
  std::map<std::string, DraftReplicas, std::less<>> services_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_SERVICES_H_
