// AskPolicy: how often one request asks one drafting service, and what came of
// it.
//
//   OpenAhead? -> (Begin -> Ask -> Collect? | Pass)* -> destruction
//
// A round waits for its answer until a deadline and no longer. After answers
// that came too late, 0, 1, 3, 7, ... up to 31 rounds go on without an ask. A
// session that owes four answers is not asked for more until one comes, and is
// given up after a minute without any. A session that broke is opened again by
// the next ask, as often as the service's breaker allows it; a request that the
// service will never take is not asked again.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ASK_POLICY_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ASK_POLICY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/drafting/draft_mailbox.h"
#include "common/drafting/draft_session.h"
#include "services/orchestrator/core/draft_peer.h"
#include "services/orchestrator/core/draft_source.h"

namespace foretoken::orchestrator {

class AskPolicy {
 public:
  // `text` gives what opens a session now. `peer` must outlive the object.
  AskPolicy(DraftPeer& peer, std::function<DraftOpen()> text)
      : peer_(peer), text_(std::move(text)) {}

  bool open() const { return session_ != nullptr; }

  // Opens a session before the first ask, unless the breaker is open.
  void OpenAhead();

  // Takes in what came since, and sees that there is a session to ask. False
  // where the service is not to be asked in this round; Collect says why.
  bool Begin();
  // Only after Begin was true.
  void Ask(DraftRound round);
  // A round that needs no draft, in place of Begin.
  void Pass();
  // Sends a round whose answer nobody waits for. Only while open().
  void Tell(DraftRound round);

  // Replaces `draft` by the answer to the last Ask, waiting for it until
  // `deadline` at most. Its phrases include those of answers that came late.
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft);

 private:
  void Open();
  bool OwesAllItMay();
  void TakeUnwaited();
  void Heard(DraftAnswer& answer);
  void Drop();
  DraftOutcome Lost(const absl::Status& status);
  absl::Time Now() const { return peer_.clock()(); }

  DraftPeer& peer_;
  const std::function<DraftOpen()> text_;
  std::shared_ptr<DraftMailbox> mailbox_;
  std::unique_ptr<DraftSession> session_;
  int unanswered_ = 0;
  // The first of what is unanswered, or the last answer.
  absl::Time owes_since_;
  bool heard_ = false;  // anything of this session

  bool pending_ = false;  // an ask that Collect has not seen answered
  int64_t asked_length_ = -1;
  absl::Time asked_at_;
  DraftOutcome outcome_ = DraftOutcome::kNotAsked;  // where none is pending
  std::vector<Phrase> phrases_;  // of answers that nobody waited for

  int late_in_a_row_ = 0;
  int skip_ = 0;             // rounds to go on without an ask
  bool left_alone_ = false;  // by the breaker
  int64_t epoch_ = 0;        // of the breaker, when it last allowed an ask
  bool given_up_ = false;
  bool logged_ = false;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ASK_POLICY_H_
