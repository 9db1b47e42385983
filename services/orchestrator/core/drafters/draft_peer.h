// DraftPeer: one replica of a drafting service as all requests see it: its
// sessions, in this process or behind a network, and whether it is worth
// asking. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_PEER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_PEER_H_

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "services/orchestrator/core/drafters/circuit_breaker.h"

namespace foretoken::orchestrator {

// How to reach a replica. Its parts are shared with their owner if that is not
// the orchestrator.
struct DraftEndpoint {
  std::shared_ptr<DraftSessions> sessions;
  std::shared_ptr<SharedPhrases> phrases;  // null: it keeps none
  // Whether it reports that it serves; must be fast. Null: always.
  std::function<bool()> up;
};

class DraftPeer {
 public:
  // `name` is for logs. `on_state`, if any, is told of every new state of the
  // breaker.
  DraftPeer(std::string name, DraftEndpoint endpoint,
            const CircuitBreakerOptions& breaker, Clock clock,
            CircuitBreaker::Listener on_state = nullptr);

  const std::string& name() const { return name_; }
  DraftSessions& sessions() { return *endpoint_.sessions; }
  SharedPhrases* phrases() { return endpoint_.phrases.get(); }
  bool up() const { return !endpoint_.up || endpoint_.up(); }
  CircuitBreaker& breaker() { return breaker_; }

 private:
  const std::string name_;
  const DraftEndpoint endpoint_;
  CircuitBreaker breaker_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_PEER_H_
