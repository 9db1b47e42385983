#include "common/drafting/observed_draft_sessions.h"

#include <atomic>
#include <utility>

#include "common/base/status_macros.h"

namespace foretoken {

class ObservedDraftSessions::Listener final : public DraftListener {
 public:
  Listener(DraftObserver& observer, std::shared_ptr<DraftListener> listener,
           std::shared_ptr<std::atomic<bool>> closed)
      : observer_(observer),
        listener_(std::move(listener)),
        closed_(std::move(closed)) {}

  void OnAnswer(DraftAnswer answer) override {
    if (observed()) observer_.OnAnswer(answer);
    listener_->OnAnswer(std::move(answer));
  }
  void OnFailed(absl::Status status) override {
    if (observed()) observer_.OnFailed(status.code());
    listener_->OnFailed(std::move(status));
  }
  bool gone() const override { return listener_->gone(); }

 private:
  bool observed() const { return !*closed_ && !listener_->gone(); }

  DraftObserver& observer_;
  const std::shared_ptr<DraftListener> listener_;
  const std::shared_ptr<std::atomic<bool>> closed_;
};

// Shares only the flag with its listener and holds no reference to it: that is
// destroyed when the service's session releases it.
class ObservedDraftSessions::Session final : public DraftSession {
 public:
  Session(std::unique_ptr<DraftSession> session,
          std::shared_ptr<std::atomic<bool>> closed)
      : session_(std::move(session)), closed_(std::move(closed)) {}
  ~Session() override { *closed_ = true; }

  void Ask(DraftRound round) override { session_->Ask(std::move(round)); }

 private:
  const std::unique_ptr<DraftSession> session_;
  const std::shared_ptr<std::atomic<bool>> closed_;
};

absl::StatusOr<std::unique_ptr<DraftSession>> ObservedDraftSessions::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  auto closed = std::make_shared<std::atomic<bool>>(false);
  const auto observed =
      std::make_shared<Listener>(observer_, std::move(listener), closed);
  auto session = sessions_.Open(std::move(open), observed);
  if (!session.ok() && !observed->gone()) {
    observer_.OnFailed(session.status().code());
  }
  FORETOKEN_RETURN_IF_ERROR(session.status());
  return std::make_unique<Session>(*std::move(session), std::move(closed));
}

}  // namespace foretoken
