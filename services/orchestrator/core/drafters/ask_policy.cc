#include "services/orchestrator/core/drafters/ask_policy.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "common/base/log.h"

namespace foretoken::orchestrator {
namespace {

// A service that owes this many answers is not asked for more.
constexpr int kMaxUnanswered = 4;
// A service that sends nothing for this long has lost the session; keepalive
// detects a hung process or host sooner.
constexpr absl::Duration kMaxDebtTime = absl::Minutes(1);
// The same while it reads a text, which may be long; no round waits for it.
constexpr absl::Duration kMaxReadTime = absl::Minutes(10);
// After this many late answers in a row, only every 32nd round asks.
constexpr int kMaxLateInARow = 5;
// Interval at which a longer wait looks whether its request was cancelled.
constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);

}  // namespace

void AskPolicy::OpenAhead() {
  // A session that is open already has read the prompt or is reading it.
  if (session_ != nullptr) return;
  auto replica = service_.Choose(scope_, DraftReplicas::Use::kOpenAhead);
  if (replica.has_value()) Open(*std::move(replica));
}

void AskPolicy::Open(DraftReplicas::Lease replica) {
  // The epoch of the ask: a failure that is reported later counts only if the
  // breaker has not opened since.
  epoch_ = replica.epoch();
  replica_.emplace(std::move(replica));
  mailbox_ = std::make_shared<DraftMailbox>(service_.clock());
  // The text is copied now, from the request's own; a session that is opened
  // rounds later starts at the current text.
  absl::StatusOr<std::unique_ptr<DraftSession>> session =
      replica_->peer().sessions().Open(text_(), mailbox_);
  if (session.ok()) {
    session_ = *std::move(session);
  } else {
    outcome_ = Lost(session.status());
  }
}

bool AskPolicy::MayAsk(bool may_move) {
  if (session_ == nullptr) {
    auto replica =
        service_.Choose(scope_, DraftReplicas::Use::kAsk, failed_replica_);
    if (!replica.has_value()) return false;
    Open(*std::move(replica));
    return true;
  }
  const std::optional<int64_t> epoch = breaker().Allow();
  // A session that owes nothing is kept even through an open breaker, and one
  // that does is for lack of another replica: a new one would prefill again a
  // prompt that this one may have almost finished.
  if (!epoch.has_value()) return may_move && unanswered_ > 0 && MoveAway();
  epoch_ = *epoch;
  return true;
}

bool AskPolicy::MoveAway() {
  auto replica =
      service_.Choose(scope_, DraftReplicas::Use::kReplace, replica_->id());
  if (!replica.has_value()) return false;
  // Late rounds were the old replica's.
  Drop();
  skip_ = late_in_a_row_ = 0;
  Open(*std::move(replica));
  return true;
}

bool AskPolicy::Begin() {
  pending_ = false;
  outcome_ = DraftOutcome::kNotAsked;
  TakeUnwaited();
  if (given_up_) {
    outcome_ = DraftOutcome::kRefused;
    return false;
  }
  // Before the rounds that late answers skip: they may not come at all.
  bool may_move = true;
  if (session_ != nullptr && unanswered_ > 0 &&
      breaker().state() == CircuitBreaker::State::kOpen) {
    may_move = MoveAway();  // not looked for twice in a round
  }
  if (StillReads()) return false;
  const bool owes_all = OwesAllItMay();
  if (owes_all || (!left_alone_ && skip_ > 0)) {
    skip_ = std::max(0, skip_ - 1);
    if (unanswered_ > 0) breaker().Late();
    outcome_ = left_alone_ ? DraftOutcome::kBreakerOpen : DraftOutcome::kLate;
    return false;
  }
  if (!MayAsk(may_move)) {
    left_alone_ = true;
    outcome_ = DraftOutcome::kBreakerOpen;
    return false;
  }
  if (std::exchange(left_alone_, false)) late_in_a_row_ = skip_ = 0;
  return session_ != nullptr;
}

void AskPolicy::Ask(DraftRound round) {
  asked_length_ = round.length;
  asked_at_ = Now();
  // Before the message is sent: its answer may come at once, in another thread.
  pending_ = true;
  Tell(std::move(round));
}

void AskPolicy::Read(DraftRound round) {
  reads_ = true;
  reads_tokens_ = round.length;
  asked_at_ = Now();
  Tell(std::move(round));
}

bool AskPolicy::StillReads() {
  if (!reads_) return false;
  outcome_ = Now() - asked_at_ < kMaxReadTime
                 ? DraftOutcome::kNotAsked
                 : Lost(absl::UnavailableError("the text is not read"));
  return true;
}

void AskPolicy::Tell(DraftRound round) {
  if (unanswered_++ == 0) owes_since_ = Now();
  session_->Ask(std::move(round));
}

void AskPolicy::Pass() {
  pending_ = false;
  outcome_ = DraftOutcome::kNotAsked;
  skip_ = std::max(0, skip_ - 1);
  TakeUnwaited();
}

DraftOutcome AskPolicy::Collect(absl::Time deadline, SourceDraft& draft) {
  draft.Clear();
  if (!std::exchange(pending_, false)) return outcome_;
  while (true) {
    auto letter = Await(deadline);
    if (!letter.has_value()) {
      // A request that was cancelled says nothing about the service.
      const absl::Time now = Now();
      if (now >= deadline) breaker().Late(/*waited=*/now - asked_at_);
      // 2^k - 1 rounds without an ask, k growing with each late answer: a
      // service that is slow for good costs this request little, and the
      // service is not flooded.
      skip_ = (1 << std::min(late_in_a_row_++, kMaxLateInARow)) - 1;
      return DraftOutcome::kLate;
    }
    if (!letter->ok()) return Lost(letter->status());
    DraftAnswer& answer = (*letter)->answer;
    // Answers carry the length that they were drafted for. One of an earlier
    // round came late; its draft would continue another text.
    const bool fresh = answer.length == asked_length_;
    if (--unanswered_ == 0 && !fresh) {
      return Lost(absl::DataLossError("an answer without a request"));
    }
    Heard(answer);
    if (!fresh) continue;
    late_in_a_row_ = 0;
    draft.tree = std::move(answer.tree);
    draft.phrases = std::exchange(phrases_, {});
    draft.latency = (*letter)->arrived - asked_at_;
    draft.shortened = answer.shortened;
    return DraftOutcome::kAnswered;
  }
}

std::optional<absl::StatusOr<DraftMailbox::Letter>> AskPolicy::Await(
    absl::Time deadline) {
  while (cancelled_ != nullptr) {
    const absl::Time step = Now() + kCancelPoll;
    if (step >= deadline) break;
    auto letter = mailbox_->Collect(step);
    if (letter.has_value()) return letter;
    if (cancelled_()) return std::nullopt;
  }
  return mailbox_->Collect(deadline);
}

// Receives late answers, and the end of a session, without waiting.
void AskPolicy::TakeUnwaited() {
  while (session_ != nullptr) {
    auto letter = mailbox_->Collect(absl::InfinitePast());
    if (!letter.has_value()) return;
    if (!letter->ok()) {
      outcome_ = Lost(letter->status());
      return;
    }
    if (unanswered_ == 0) {
      outcome_ = Lost(absl::DataLossError("an answer without a request"));
      return;
    }
    --unanswered_;
    if (std::exchange(reads_, false)) {
      text_read_ = {reads_tokens_, (*letter)->arrived - asked_at_};
    }
    Heard((*letter)->answer);
  }
}

// Handles an answer, in time or late.
void AskPolicy::Heard(DraftAnswer& answer) {
  heard_ = true;
  owes_since_ = Now();
  breaker().Success();
  KeepPhrases(std::move(answer.phrases), phrases_);
}

// True while kMaxUnanswered answers are outstanding. Gives up the session after
// kMaxDebtTime without any.
bool AskPolicy::OwesAllItMay() {
  if (unanswered_ < kMaxUnanswered) return false;
  if (Now() - owes_since_ < kMaxDebtTime) return true;
  Drop();
  return false;
}

void AskPolicy::Drop() {
  session_.reset();
  mailbox_.reset();
  replica_.reset();
  unanswered_ = 0;
  heard_ = reads_ = false;
}

// Handles the loss of the session with `status`; the next ask opens another.
DraftOutcome AskPolicy::Lost(const absl::Status& status) {
  // With nothing asked, the service has merely closed an idle session.
  const bool expired = absl::IsDeadlineExceeded(status) && unanswered_ == 0;
  // Faults of the request, such as another tokenizer's tokens: the service is
  // healthy and would refuse again. A session that has answered before may be
  // reopened.
  const bool unfit = absl::IsInvalidArgument(status) ||
                     absl::IsUnimplemented(status) ||
                     absl::IsNotFound(status) ||
                     (absl::IsFailedPrecondition(status) && !heard_);
  // A copy: Drop releases the replica, and with it possibly the last reference
  // to its name.
  const std::string name = replica_->peer().name();
  if (!expired && !unfit) {
    failed_replica_ = replica_->id();
    breaker().Failure(epoch_);
  }
  Drop();
  if (expired) return DraftOutcome::kNotAsked;
  // Logged once per request: the metrics count every failure.
  if (!std::exchange(logged_, true)) {
    FORETOKEN_LOG(kInfo, name, ": no draft: ", status.ToString());
  }
  if (unfit) {
    given_up_ = true;
    return DraftOutcome::kRefused;
  }
  return absl::IsResourceExhausted(status) ? DraftOutcome::kRefused
                                           : DraftOutcome::kBroken;
}

}  // namespace foretoken::orchestrator
