// WorkerDraftSessions: sessions whose opening and end take longer than a caller
// should wait: both run on a pool of workers. Rounds run where they are asked
// for, but for those that commit much and those that overtake the opening.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_DRAFTING_WORKER_DRAFT_SESSIONS_H_
#define FORETOKEN_COMMON_DRAFTING_WORKER_DRAFT_SESSIONS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/worker_pool.h"
#include "common/drafting/draft_session.h"

namespace foretoken {

class WorkerDraftSessions final : public DraftSessions {
 public:
  // `sessions` answer within Ask; they must outlive the pool, which ends what
  // is left, and the pool every session's owner.
  WorkerDraftSessions(DraftSessions& sessions, WorkerPool& workers)
      : sessions_(sessions), workers_(workers) {}

  // ResourceExhausted without room for a worker.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

 private:
  class Session;
  class Handle;

  DraftSessions& sessions_;
  WorkerPool& workers_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_WORKER_DRAFT_SESSIONS_H_
