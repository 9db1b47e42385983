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
    if (!*closed_) observer_.OnAnswer(answer);
    listener_->OnAnswer(std::move(answer));
  }
  void OnFailed(absl::Status status) override {
    if (!*closed_) observer_.OnFailed(status.code());
    listener_->OnFailed(std::move(status));
  }

 private:
  DraftObserver& observer_;
  const std::shared_ptr<DraftListener> listener_;
  const std::shared_ptr<std::atomic<bool>> closed_;
};

// Shares only the flag with its listener: the session must be the one to
// release that.
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
  auto session = sessions_.Open(
      std::move(open),
      std::make_shared<Listener>(observer_, std::move(listener), closed));
  if (!session.ok()) observer_.OnFailed(session.status().code());
  FORETOKEN_RETURN_IF_ERROR(session.status());
  return std::make_unique<Session>(*std::move(session), std::move(closed));
}

}  // namespace foretoken
