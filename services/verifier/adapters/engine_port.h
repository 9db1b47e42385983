// EnginePort: the engine as the protocol of a session sees it.
#ifndef FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_PORT_H_
#define FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_PORT_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/speculation/round.h"

namespace foretoken::verifier {

// Names a session towards the engine's callers; never reused.
using Ticket = int64_t;

// What becomes of one session. Called on the engine thread, which waits: a sink
// hands over and returns. After OnFailed nothing more comes.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void OnOpened() = 0;
  virtual void OnPrefilled(PrefillResult result) = 0;
  virtual void OnRound(RoundResult result) = 0;
  virtual void OnFailed(absl::Status status) = 0;
};

// What the protocol of a session needs of the engine.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  // ResourceExhausted when the queue is full, Unavailable after Stop.
  virtual absl::StatusOr<Ticket> Open(SessionRequest request,
                                      std::shared_ptr<SessionSink> sink) = 0;
  virtual absl::Status Round(Ticket ticket, RoundRequest request) = 0;
  // Never refused; of an unknown ticket it does nothing. The sink may still
  // hear of what was under way.
  virtual void Close(Ticket ticket) = 0;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_PORT_H_
