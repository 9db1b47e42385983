#include "services/draft_worker/core/engine_draft_sessions.h"

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"

namespace foretoken::draft_worker {
namespace {

// What the engine thread has to say to the caller of one session.
class Mailbox final : public DraftListener {
 public:
  void OnOpened(const std::string&) override {
    absl::MutexLock lock(&mu_);
    opened_ = true;
    ready_.Signal();
  }
  void OnAnswer(DraftAnswer answer) override {
    absl::MutexLock lock(&mu_);
    answer_ = std::move(answer);
    ready_.Signal();
  }
  void OnFailed(absl::Status status) override { End(std::move(status)); }

  // The first status counts.
  void End(absl::Status status) {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = std::move(status);
    ready_.Signal();
  }

  absl::Status AwaitOpened() {
    absl::MutexLock lock(&mu_);
    while (!opened_ && failure_.ok()) ready_.Wait(&mu_);
    return failure_;
  }

  // Before a round is asked for.
  absl::Status Begin() {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return absl::NotFoundError("the session has ended");
    answer_.reset();
    waiting_ = true;
    return absl::OkStatus();
  }

  absl::Status AwaitAnswer(DraftAnswer& answer) {
    absl::MutexLock lock(&mu_);
    while (!answer_.has_value() && failure_.ok()) ready_.Wait(&mu_);
    waiting_ = false;
    if (!answer_.has_value()) return failure_;
    answer = *std::move(answer_);
    return absl::OkStatus();
  }

  bool waiting() const {
    absl::MutexLock lock(&mu_);
    return waiting_;
  }

 private:
  mutable absl::Mutex mu_;
  absl::CondVar ready_;
  bool opened_ ABSL_GUARDED_BY(mu_) = false;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<DraftAnswer> answer_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

class EngineDraftSessions::Session final : public DraftSession {
 public:
  Session(std::unique_ptr<Loop::Session> session,
          std::shared_ptr<Mailbox> mailbox)
      : session_(std::move(session)), mailbox_(std::move(mailbox)) {}

  absl::Status Round(const DraftRound& round, DraftAnswer& answer) override {
    FORETOKEN_RETURN_IF_ERROR(mailbox_->Begin());
    FORETOKEN_RETURN_IF_ERROR(session_->Ask(round));
    return mailbox_->AwaitAnswer(answer);
  }

  void Cancel() override {
    // The caller goes on at once; the engine hears of it after its pass.
    if (!mailbox_->waiting()) return;
    session_->Close();
    mailbox_->End(absl::CancelledError("the round was cancelled"));
  }

 private:
  const std::unique_ptr<Loop::Session> session_;
  const std::shared_ptr<Mailbox> mailbox_;
};

absl::StatusOr<std::unique_ptr<DraftSession>> EngineDraftSessions::Open(
    DraftOpen open) {
  auto mailbox = std::make_shared<Mailbox>();
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Loop::Session> session,
                             loop_.Open(std::move(open), mailbox));
  FORETOKEN_RETURN_IF_ERROR(mailbox->AwaitOpened());
  return std::make_unique<Session>(std::move(session), std::move(mailbox));
}

}  // namespace foretoken::draft_worker
