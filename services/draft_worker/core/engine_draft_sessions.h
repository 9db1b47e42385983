// EngineDraftSessions: the draft worker as its callers see it, in one process
// and behind gRPC: sessions on a DraftEngine with a thread of its own.
//
// Rounds of many sessions share passes. Opening only admits: the prompt is
// prefilled in separate passes while the caller goes on. Thread-safe; sessions
// must be destroyed first.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_ENGINE_DRAFT_SESSIONS_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_ENGINE_DRAFT_SESSIONS_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"
#include "common/engine/engine_loop.h"
#include "services/draft_worker/core/draft_engine.h"

namespace foretoken::draft_worker {

class EngineDraftSessions final : public DraftSessions {
 public:
  using Loop = EngineLoop<DraftEngine>;

  EngineDraftSessions(const EngineLoopOptions& options,
                      std::unique_ptr<DraftEngine> engine,
                      Loop::Observer observer, Clock clock = MonotonicClock())
      : loop_(options, std::move(engine), std::move(observer),
              std::move(clock)) {}

  // ResourceExhausted if the queue is full; errors of DraftEngine::Open are
  // reported to OnFailed.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

  Loop& loop() { return loop_; }

 private:
  class Rounds;
  class Session;

  Loop loop_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_ENGINE_DRAFT_SESSIONS_H_
