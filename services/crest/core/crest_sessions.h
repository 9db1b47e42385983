// CrestSessions: look-ups in the datastores behind the interface of every
// drafting service, for callers in the same process.
//
// A session keeps the end of its text. A look-up in memory is answered within
// Ask; one that needs PostgreSQL goes to the version's row worker, which
// batches the look-ups of all sessions. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_CORE_CREST_SESSIONS_H_
#define FORETOKEN_SERVICES_CREST_CORE_CREST_SESSIONS_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "services/crest/core/datastores.h"

namespace foretoken::crest {

// Observes look-ups, for metrics. Must be thread-safe and fast.
class LookupObserver {
 public:
  virtual ~LookupObserver() = default;
  // n of a look-up that was answered in memory, 0 for a miss.
  virtual void LookedUpInMemory(int n, absl::Duration took) = 0;
  virtual void LookedUpInPostgres(int n, bool cached, absl::Duration took) = 0;
  // A look-up, or the request for one, ended with an error.
  virtual void LookupFailed() = 0;
};

class CrestSessions final : public DraftSessions {
 public:
  // Both must outlive the object and its sessions.
  CrestSessions(const Datastores& datastores, LookupObserver& observer,
                Clock clock = MonotonicClock())
      : datastores_(datastores),
        observer_(observer),
        clock_(std::move(clock)) {}

  // NotFound for an unknown datastore; Unimplemented for another mode.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

 private:
  class Session;

  const Datastores& datastores_;
  LookupObserver& observer_;
  const Clock clock_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_CREST_SESSIONS_H_
