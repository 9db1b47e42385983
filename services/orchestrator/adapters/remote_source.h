// RemoteSource: what every DraftSource over a stream has in common: asks that
// are never waited for longer than their deadline, a stream that is opened
// again when it broke, and the breaker of its service.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_SOURCE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_SOURCE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "services/orchestrator/adapters/bidi_call.h"
#include "services/orchestrator/adapters/draft_peer.h"
#include "services/orchestrator/core/draft_source.h"

namespace foretoken::orchestrator {

template <typename Request, typename Response>
class RemoteSource : public DraftSource {
 public:
  using Call = BidiCall<Request, Response>;

  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override {
    draft.Clear();
    if (!pending_) return outcome_;
    pending_ = false;
    while (true) {
      auto received = call_->Receive(deadline);
      if (!received.has_value()) {
        peer_.breaker().Late();
        // 0, 1, 3, 7, ... rounds without it.
        skip_ = (1 << std::min(late_in_a_row_++, kMaxLateInARow)) - 1;
        return DraftOutcome::kLate;
      }
      if (!received->ok()) return Lost(received->status());
      --unanswered_;
      const Answer answer = Parse((*received)->message, draft);
      if (answer == Answer::kBad ||
          (answer == Answer::kStale && unanswered_ == 0)) {
        return Lost(absl::DataLossError("an answer that makes no sense"));
      }
      Heard();
      if (answer == Answer::kStale) continue;
      draft.latency = (*received)->arrived - asked_at_;
      late_in_a_row_ = 0;
      return DraftOutcome::kAnswered;
    }
  }

 protected:
  enum class Answer { kFresh, kStale, kBad };

  // `peer` must outlive the object.
  explicit RemoteSource(DraftPeer& peer) : peer_(peer) {}
  // Derived destructors call Hangup.
  ~RemoteSource() override = default;

  // A new stream with whatever opens it sent.
  virtual std::shared_ptr<Call> Dial() = 0;
  // Fills `draft` from the answer to the last ask; of a stale one it may keep
  // phrases.
  virtual Answer Parse(Response& message, SourceDraft& draft) = 0;

  DraftPeer& peer() { return peer_; }
  bool connected() const { return call_ != nullptr; }

  // Opens the stream ahead of the first ask, if the service may be used.
  void DialAhead() {
    if (call_ != nullptr) return;
    const std::optional<int64_t> era = peer_.breaker().AllowAhead();
    if (!era.has_value()) return;
    era_ = *era;
    call_ = Dial();
  }
  // Sends what is answered but not collected.
  void SendUnasked(Request message) {
    if (unanswered_++ == 0) owes_since_ = absl::Now();
    call_->Send(std::move(message));
  }

  // Takes in what came since, then sees that there is a stream to ask on.
  // False where the ask is off; Collect then says why.
  bool PrepareAsk(SourceDraft& leftovers) {
    pending_ = false;
    outcome_ = DraftOutcome::kNotAsked;
    TakeLeftovers(leftovers);
    if (given_up_) {
      outcome_ = DraftOutcome::kRefused;
      return false;
    }
    const bool owes_all = OwesAllItMay();
    if (owes_all || (!left_alone_ && skip_ > 0)) {
      skip_ = std::max(0, skip_ - 1);
      if (unanswered_ > 0) peer_.breaker().Late();
      outcome_ = left_alone_ ? DraftOutcome::kBreakerOpen : DraftOutcome::kLate;
      return false;
    }
    const std::optional<int64_t> era = peer_.breaker().Allow();
    if (!era.has_value()) {
      left_alone_ = true;
      outcome_ = DraftOutcome::kBreakerOpen;
      return false;
    }
    era_ = *era;
    if (std::exchange(left_alone_, false)) late_in_a_row_ = skip_ = 0;
    // Even after the breaker was open: another stream would begin again with a
    // prompt that this one may be almost through with.
    if (call_ == nullptr) call_ = Dial();
    return true;
  }

  // Sends the ask that PrepareAsk made room for.
  void SendAsk(Request message) {
    SendUnasked(std::move(message));
    asked_at_ = absl::Now();
    pending_ = true;
  }

  // A round that asks for no draft.
  void PassRound(SourceDraft& leftovers) {
    skip_ = std::max(0, skip_ - 1);
    TakeLeftovers(leftovers);
  }

  // Reads answers that nobody waits for, and the end of a stream.
  void TakeLeftovers(SourceDraft& leftovers) {
    while (call_ != nullptr) {
      auto received = call_->Receive(absl::InfinitePast());
      if (!received.has_value()) return;
      if (!received->ok()) {
        outcome_ = Lost(received->status());
        return;
      }
      --unanswered_;
      if (Parse((*received)->message, leftovers) == Answer::kBad) {
        outcome_ = Lost(absl::DataLossError("an answer that makes no sense"));
        return;
      }
      Heard();
    }
  }

  // Ends the stream in good order, what was sent included.
  void Hangup() {
    if (call_ == nullptr) return;
    call_->Finish();
    peer_.LetEnd(std::move(call_));
    call_ = nullptr;
  }

 private:
  // A service that owes this many answers is not asked for more.
  static constexpr int kMaxUnanswered = 4;
  // One that says nothing for so long has lost the stream: a hung process or
  // host ends sooner, by the connection's keepalive.
  static constexpr absl::Duration kLongestDebt = absl::Minutes(1);
  // From then on it is asked in every 32nd round.
  static constexpr int kMaxLateInARow = 5;

  // A stream that is owed too much for too long is given up.
  bool OwesAllItMay() {
    if (unanswered_ < kMaxUnanswered) return false;
    if (absl::Now() - owes_since_ < kLongestDebt) return true;
    Drop();
    return false;
  }

  // An answer came, in time or not.
  void Heard() {
    heard_ = true;
    owes_since_ = absl::Now();
    peer_.breaker().Success();
  }

  void Drop() {
    if (call_ == nullptr) return;
    call_->Cancel();
    call_->Finish();
    call_.reset();
    unanswered_ = 0;
    heard_ = false;
  }

  // The stream is gone, for `status`; the next ask opens another.
  DraftOutcome Lost(const absl::Status& status) {
    // Nobody had asked anything, and the service does not wait for ever.
    const bool expired = absl::IsDeadlineExceeded(status) && unanswered_ == 0;
    // The request's own fault, such as another tokenizer's tokens: the service
    // is well, and will say so again. A session that was well once may be
    // opened again.
    const bool unfit = absl::IsInvalidArgument(status) ||
                       absl::IsUnimplemented(status) ||
                       absl::IsNotFound(status) ||
                       (absl::IsFailedPrecondition(status) && !heard_);
    Drop();
    if (expired) return DraftOutcome::kNotAsked;
    // Once a request: the metrics count them all.
    if (!std::exchange(logged_, true)) {
      FORETOKEN_LOG(kInfo, peer_.name(), ": no draft: ", status.ToString());
    }
    if (unfit) {
      given_up_ = true;
      return DraftOutcome::kRefused;
    }
    peer_.breaker().Failure(era_);
    return absl::IsResourceExhausted(status) ? DraftOutcome::kRefused
                                             : DraftOutcome::kBroken;
  }

  DraftPeer& peer_;
  std::shared_ptr<Call> call_;
  int unanswered_ = 0;
  bool pending_ = false;  // an ask that Collect has not seen answered
  bool heard_ = false;    // anything on this stream
  bool left_alone_ = false;
  absl::Time
      owes_since_;   // the first of what is unanswered, or the last answer
  int64_t era_ = 0;  // of the breaker, at the last leave to ask
  int late_in_a_row_ = 0;
  int skip_ = 0;  // so many rounds without an ask
  bool given_up_ = false;
  bool logged_ = false;
  DraftOutcome outcome_ = DraftOutcome::kNotAsked;
  absl::Time asked_at_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_SOURCE_H_
