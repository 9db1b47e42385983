// ObservedSessions: reports a drafting service's sessions to the observer that
// its streams use, for callers in the same process. Thread-safe.
#ifndef FORETOKEN_SERVICES_LOCAL_OBSERVED_SESSIONS_H_
#define FORETOKEN_SERVICES_LOCAL_OBSERVED_SESSIONS_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"
#include "common/rpc/draft_stream.h"

namespace foretoken::local {

class ObservedSessions final : public DraftSessions {
 public:
  // Both must outlive the object and its sessions.
  ObservedSessions(DraftSessions& sessions, rpc::DraftStreamObserver& observer)
      : sessions_(sessions), observer_(observer) {}

  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override {
    auto session = sessions_.Open(
        std::move(open),
        std::make_shared<Listener>(observer_, std::move(listener)));
    if (!session.ok()) observer_.OnFailed(session.status().code());
    return session;
  }

 private:
  class Listener final : public DraftListener {
   public:
    Listener(rpc::DraftStreamObserver& observer,
             std::shared_ptr<DraftListener> listener)
        : observer_(observer), listener_(std::move(listener)) {}
    void OnAnswer(DraftAnswer answer) override {
      observer_.OnAnswer(answer);
      listener_->OnAnswer(std::move(answer));
    }
    void OnFailed(absl::Status status) override {
      observer_.OnFailed(status.code());
      listener_->OnFailed(std::move(status));
    }

   private:
    rpc::DraftStreamObserver& observer_;
    const std::shared_ptr<DraftListener> listener_;
  };

  DraftSessions& sessions_;
  rpc::DraftStreamObserver& observer_;
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_OBSERVED_SESSIONS_H_
