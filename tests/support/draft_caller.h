// DraftCaller: a draft session whose rounds block until they are answered.
#ifndef FORETOKEN_TESTS_SUPPORT_DRAFT_CALLER_H_
#define FORETOKEN_TESTS_SUPPORT_DRAFT_CALLER_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/drafting/draft_mailbox.h"
#include "common/drafting/draft_session.h"

namespace foretoken::testing {

class DraftCaller {
 public:
  static absl::StatusOr<std::unique_ptr<DraftCaller>> Open(
      DraftSessions& sessions, DraftOpen open) {
    auto caller = std::make_unique<DraftCaller>();
    auto session = sessions.Open(std::move(open), caller->mailbox_);
    if (!session.ok()) return session.status();
    caller->session_ = *std::move(session);
    return caller;
  }

  absl::Status Round(DraftRound round, DraftAnswer& answer) {
    Ask(std::move(round));
    return Collect(answer);
  }
  void Ask(DraftRound round) { session_->Ask(std::move(round)); }
  // The next answer, or what ended the session.
  absl::Status Collect(DraftAnswer& answer) {
    auto letter = mailbox_->Collect(absl::InfiniteFuture());
    if (letter->ok()) answer = (*letter)->answer;
    return letter->status();
  }
  void Close() { session_.reset(); }

 private:
  const std::shared_ptr<DraftMailbox> mailbox_ =
      std::make_shared<DraftMailbox>();
  std::unique_ptr<DraftSession> session_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_DRAFT_CALLER_H_
