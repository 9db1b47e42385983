#include "services/draft_worker/core/engine_draft_sessions.h"

#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"

namespace foretoken::draft_worker {

// Queue of one session's rounds; the engine takes one at a time.
class EngineDraftSessions::Rounds final : public EngineDraftListener {
 public:
  explicit Rounds(std::shared_ptr<DraftListener> listener)
      : listener_(std::move(listener)) {}

  // The engine may report to this object already.
  void Start(std::unique_ptr<Loop::Session> session) {
    absl::MutexLock lock(&mu_);
    session_ = std::move(session);
  }
  // Closes the session in any state.
  void Close() {
    absl::MutexLock lock(&mu_);
    waiting_.clear();
    session_.reset();
  }

  // Errors are ignored: an engine that stops fails all of its sessions.
  void Ask(DraftRound round) {
    absl::MutexLock lock(&mu_);
    // One round in the engine at a time; its protocol allows no more.
    if (std::exchange(busy_, true)) {
      waiting_.push_back(std::move(round));
    } else {
      session_->Ask(std::move(round)).IgnoreError();
    }
  }

  // Called on the engine thread.
  void OnOpened(const std::string&) override {}
  void OnAnswer(DraftAnswer answer) override {
    {
      absl::MutexLock lock(&mu_);
      busy_ = !waiting_.empty();
      if (busy_) {
        session_->Ask(std::move(waiting_.front())).IgnoreError();
        waiting_.pop_front();
      }
    }
    // After mu_ is released: the listener may ask again at once.
    listener_->OnAnswer(std::move(answer));
  }
  void OnFailed(absl::Status status) override {
    listener_->OnFailed(std::move(status));
  }

 private:
  const std::shared_ptr<DraftListener> listener_;
  absl::Mutex mu_;
  std::unique_ptr<Loop::Session> session_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // the engine has a round
  std::deque<DraftRound> waiting_ ABSL_GUARDED_BY(mu_);
};

class EngineDraftSessions::Session final : public DraftSession {
 public:
  explicit Session(std::shared_ptr<Rounds> rounds)
      : rounds_(std::move(rounds)) {}
  ~Session() override { rounds_->Close(); }
  void Ask(DraftRound round) override { rounds_->Ask(std::move(round)); }

 private:
  const std::shared_ptr<Rounds> rounds_;
};

absl::StatusOr<std::unique_ptr<DraftSession>> EngineDraftSessions::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  auto rounds = std::make_shared<Rounds>(std::move(listener));
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Loop::Session> session,
                             loop_.Open(std::move(open), rounds));
  // The rounds exist before the session does, because the engine needs their
  // address to report to.
  rounds->Start(std::move(session));
  return std::make_unique<Session>(std::move(rounds));
}

}  // namespace foretoken::draft_worker
