#include "common/drafting/queued_draft_sessions.h"

#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Rounds that commit more tokens run on a worker.
constexpr size_t kCommittedAtOnce = 256;

}  // namespace

// Shared by its handle and its worker. While `working_` is set, the worker owns
// session_, otherwise the handle, whose thread alone sets `working_`.
class QueuedDraftSessions::Session final
    : public std::enable_shared_from_this<Session> {
 public:
  Session(WorkerPool& workers, std::shared_ptr<DraftListener> listener)
      : workers_(workers), listener_(std::move(listener)) {}

  absl::Status Open(DraftSessions& sessions, DraftOpen open) {
    absl::MutexLock lock(&mu_);
    return Submit([this, &sessions, open = std::move(open)]() mutable {
      auto session = sessions.Open(std::move(open), listener_);
      if (session.ok()) {
        session_ = *std::move(session);
      } else {
        listener_->OnFailed(session.status());
      }
    });
  }

  void Ask(DraftRound round) {
    absl::Status submitted;
    {
      absl::MutexLock lock(&mu_);
      if (working_ || round.committed.size() > kCommittedAtOnce) {
        waiting_.push_back(std::move(round));
        if (working_) return;
        submitted = Submit([] {});
        if (submitted.ok()) return;
        waiting_.clear();
      }
    }
    if (session_ == nullptr) return;
    if (submitted.ok()) {
      session_->Ask(std::move(round));
    } else {
      session_.reset();
      listener_->OnFailed(submitted);
    }
  }

  void Close() {
    {
      absl::MutexLock lock(&mu_);
      closed_ = true;
      if (working_ || session_ == nullptr || Submit([] {}).ok()) return;
    }
    session_.reset();
  }

 private:
  // Runs on a worker: `first`, then the waiting rounds.
  absl::Status Submit(std::function<void()> first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Status submitted =
        workers_.Submit([self = shared_from_this(), first = std::move(first)] {
          first();
          self->Work();
        });
    working_ = submitted.ok();
    return submitted;
  }

  void Work() ABSL_LOCKS_EXCLUDED(mu_) {
    std::unique_ptr<DraftSession> ended;  // destroyed without the lock
    while (true) {
      DraftRound round;
      {
        absl::MutexLock lock(&mu_);
        if (session_ == nullptr) waiting_.clear();
        if (waiting_.empty()) {
          if (closed_) ended = std::move(session_);
          working_ = false;
          return;
        }
        round = std::move(waiting_.front());
        waiting_.pop_front();
      }
      session_->Ask(std::move(round));
    }
  }

  WorkerPool& workers_;
  const std::shared_ptr<DraftListener> listener_;
  std::unique_ptr<DraftSession> session_;  // null: not open, or it failed

  absl::Mutex mu_;
  std::deque<DraftRound> waiting_ ABSL_GUARDED_BY(mu_);
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

class QueuedDraftSessions::Handle final : public DraftSession {
 public:
  explicit Handle(std::shared_ptr<Session> session)
      : session_(std::move(session)) {}
  ~Handle() override { session_->Close(); }
  void Ask(DraftRound round) override { session_->Ask(std::move(round)); }

 private:
  const std::shared_ptr<Session> session_;
};

absl::StatusOr<std::unique_ptr<DraftSession>> QueuedDraftSessions::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  auto session = std::make_shared<Session>(workers_, std::move(listener));
  FORETOKEN_RETURN_IF_ERROR(session->Open(sessions_, std::move(open)));
  return std::make_unique<Handle>(std::move(session));
}

}  // namespace foretoken
