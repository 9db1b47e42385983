// AskPolicy: how often one request asks one drafting service, which of its
// replicas, and with what outcome.
//
//   OpenAhead? -> (Begin -> Ask | Read -> Collect? | Pass)* -> destruction
//
// A round waits for its answer until a deadline and no longer, and not after
// its request was cancelled. After consecutive late answers, the next 0, 1, 3,
// 7, ... up to 31 rounds do not ask. A session that owes four answers is not
// asked again until one arrives, and is given up after a minute without any. A
// session stays on its replica while that answers. A broken one is reopened, on
// another replica if there is one, by the next ask that a breaker allows, and
// one that owes an answer while its replica's breaker is open is given up for
// another replica, whose breaker is closed; a service that refuses the request
// for good is not asked again.
//
// A session that has much to read first may do so in the shadow of rounds: they
// go on without it until it has answered a Read.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_ASK_POLICY_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_ASK_POLICY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/drafting/draft_mailbox.h"
#include "common/drafting/draft_session.h"
#include "services/orchestrator/core/drafters/draft_replicas.h"
#include "services/orchestrator/core/drafters/draft_source.h"

namespace foretoken::orchestrator {

class AskPolicy {
 public:
  // `text` returns the message that opens a session now; `cancelled` whether
  // the request was cancelled (null: never). `service` must outlive the object.
  AskPolicy(DraftReplicas& service, std::function<DraftOpen()> text,
            std::function<bool()> cancelled = nullptr)
      : service_(service),
        text_(std::move(text)),
        cancelled_(std::move(cancelled)) {}

  // The cache scope of the request, before its first session.
  void SetScope(std::string scope) { scope_ = std::move(scope); }

  bool open() const { return session_ != nullptr; }

  // Opens a session before the first ask, unless all breakers are open.
  void OpenAhead();

  // Receives late answers and makes sure that a session is open. False if the
  // service is not to be asked in this round; Collect returns the reason.
  bool Begin();
  // Only after Begin was true.
  void Ask(DraftRound round);
  // The same for a session that has answered nothing yet: asks it to read the
  // text, for which no round waits. Begin is false until it has.
  void Read(DraftRound round);
  // True if the session has answered, and so has read the text.
  bool has_read() const { return heard_; }
  // A text that was read since the last call, by Read.
  std::optional<TextRead> TakeTextRead() {
    return std::exchange(text_read_, std::nullopt);
  }
  // Replaces Begin in a round that needs no draft.
  void Pass();
  // Sends a round without waiting for its answer. Only while open().
  void Tell(DraftRound round);

  // Replaces `draft` by the answer to the last Ask, waiting for it until
  // `deadline` at most. Its phrases include those of answers that came late.
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft);

 private:
  // Whether a session is open, or was opened now, that may be asked. Moves a
  // session that owes an answer only if it `may_move`.
  bool MayAsk(bool may_move);
  // Replaces the session by one on another replica, whose breaker is closed.
  // False if there is none.
  bool MoveAway();
  void Open(DraftReplicas::Lease replica);
  CircuitBreaker& breaker() { return replica_->peer().breaker(); }
  // The next answer or the session's end; nullopt if neither came by
  // `deadline`, or the request was cancelled.
  std::optional<absl::StatusOr<DraftMailbox::Letter>> Await(
      absl::Time deadline);
  bool OwesAllItMay();
  // Whether the session still reads; gives up one that has for too long.
  bool StillReads();
  void TakeUnwaited();
  void Heard(DraftAnswer& answer);
  void Drop();
  DraftOutcome Lost(const absl::Status& status);
  absl::Time Now() const { return service_.clock()(); }

  DraftReplicas& service_;
  const std::function<DraftOpen()> text_;
  const std::function<bool()> cancelled_;
  std::string scope_;
  std::optional<DraftReplicas::Lease> replica_;  // of the session
  int failed_replica_ = -1;  // the last one that a session was lost on
  std::shared_ptr<DraftMailbox> mailbox_;
  std::unique_ptr<DraftSession> session_;
  int unanswered_ = 0;
  // Time of the first unanswered ask, or of the last answer if later.
  absl::Time owes_since_;
  bool heard_ = false;  // this session has answered
  bool reads_ = false;  // it owes the answer to a Read
  int64_t reads_tokens_ = 0;
  std::optional<TextRead> text_read_;

  bool pending_ = false;  // an ask that Collect has not seen answered
  int64_t asked_length_ = -1;
  absl::Time asked_at_;
  DraftOutcome outcome_ = DraftOutcome::kNotAsked;  // if none is pending
  std::vector<Phrase> phrases_;                     // of late answers

  int late_in_a_row_ = 0;
  int skip_ = 0;             // rounds to skip
  bool left_alone_ = false;  // the breaker refused the last ask
  int64_t epoch_ = 0;        // its epoch at the last allowed ask
  bool given_up_ = false;
  bool logged_ = false;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_ASK_POLICY_H_
