// ObservedDraftSessions: the sessions of a drafting service, reported to its
// observer. A service decorates its sessions once, for its streams and for
// callers in the same process.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_DRAFTING_OBSERVED_DRAFT_SESSIONS_H_
#define FORETOKEN_COMMON_DRAFTING_OBSERVED_DRAFT_SESSIONS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"

namespace foretoken {

// Receives the events of sessions, for metrics. Thread-safe and quick.
class DraftObserver {
 public:
  virtual ~DraftObserver() = default;
  virtual void OnAnswer(const DraftAnswer& answer) = 0;
  // A session ended with an error, or was refused.
  virtual void OnFailed(absl::StatusCode code) = 0;
};

class ObservedDraftSessions final : public DraftSessions {
 public:
  // Both must outlive the object and its sessions.
  ObservedDraftSessions(DraftSessions& sessions, DraftObserver& observer)
      : sessions_(sessions), observer_(observer) {}

  // Events of a session whose caller has closed it or has gone
  // (DraftListener::gone) are delivered, but not observed, and neither is a
  // refusal that finds the caller gone.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

 private:
  class Listener;
  class Session;

  DraftSessions& sessions_;
  DraftObserver& observer_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_OBSERVED_DRAFT_SESSIONS_H_
