// QueuedDraftSessions: opens and closes sessions on a worker pool, since both
// take longer than a caller should wait. Rounds run on the caller's thread,
// except those that commit many tokens or arrive before the session is open.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_DRAFTING_QUEUED_DRAFT_SESSIONS_H_
#define FORETOKEN_COMMON_DRAFTING_QUEUED_DRAFT_SESSIONS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/worker_pool.h"
#include "common/drafting/draft_session.h"

namespace foretoken {

class QueuedDraftSessions final : public DraftSessions {
 public:
  // `sessions` answer within Ask. They must outlive the pool, which finishes
  // the remaining work, and the pool must outlive every session's owner.
  QueuedDraftSessions(DraftSessions& sessions, WorkerPool& workers)
      : sessions_(sessions), workers_(workers) {}

  // ResourceExhausted if the worker pool is full.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

 private:
  class Session;
  class Handle;

  DraftSessions& sessions_;
  WorkerPool& workers_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_QUEUED_DRAFT_SESSIONS_H_
