// EngineDraftSessions: the draft worker behind the interface of every drafting
// service, in one process and behind gRPC: sessions on a DraftEngine with a
// thread of its own.
//
// A session's Round blocks its caller until the engine has its draft; rounds of
// many callers share passes. Opening only admits: the prompt is read in passes
// of its own while the caller goes on.
//
// Embedding it in a process:
//
//   EngineDraftSessions drafts(options, std::make_unique<DraftEngine>(...),
//                              nullptr);
//   auto session = drafts.Open(open);       // a DraftSession
//   (*session)->Round(round, answer);
//
// Thread-safe; sessions must be gone before it.
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
                      Loop::Observer observer, Clock clock = SystemClock())
      : loop_(options, std::move(engine), std::move(observer),
              std::move(clock)) {}

  // As DraftEngine::Open, which it waits for; ResourceExhausted also when the
  // queue is full.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(DraftOpen open) override;

  Loop& loop() { return loop_; }

 private:
  class Session;

  Loop loop_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_ENGINE_DRAFT_SESSIONS_H_
