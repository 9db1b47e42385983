// DraftPeer: one drafting service as all requests see it: its sessions, in
// this process or behind a network, and whether it is worth asking.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_PEER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_PEER_H_

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "services/orchestrator/core/circuit_breaker.h"

namespace foretoken::orchestrator {

class DraftPeer {
 public:
  // `name` is for logs and metrics. `sessions` must outlive the object;
  // `on_state`, if any, is told of every new state of the breaker.
  DraftPeer(std::string name, DraftSessions& sessions,
            const CircuitBreakerOptions& breaker, Clock clock,
            CircuitBreaker::Listener on_state = nullptr);

  const std::string& name() const { return name_; }
  DraftSessions& sessions() { return sessions_; }
  CircuitBreaker& breaker() { return breaker_; }
  const Clock& clock() const { return clock_; }

 private:
  const std::string name_;
  DraftSessions& sessions_;
  const Clock clock_;
  CircuitBreaker breaker_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_PEER_H_
