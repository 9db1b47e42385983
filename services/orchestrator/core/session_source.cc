#include "services/orchestrator/core/session_source.h"

#include <utility>

#include "common/base/log.h"

namespace foretoken::orchestrator {

SessionSource::SessionSource(DrafterId id, Mode mode,
                             std::string tokenizer_fingerprint,
                             DraftServiceHere service, Clock clock)
    : id_(id),
      mode_(std::move(mode)),
      tokenizer_fingerprint_(std::move(tokenizer_fingerprint)),
      service_(std::move(service)),
      clock_(std::move(clock)) {}

// A session that is still being opened is its worker's to end.
SessionSource::~SessionSource() { EndSession(); }

void SessionSource::Start(const DraftOpen& open) {
  open_ = open;
  open_.mode = mode_;
  open_.tokenizer_fingerprint = tokenizer_fingerprint_;
  Open();
}

void SessionSource::Open() {
  round_.committed.clear();
  opening_ = std::make_shared<Opening>();
  const absl::Status submitted = service_.workers->Submit(
      [opening = opening_, sessions = service_.sessions, open = open_]() {
        auto session = sessions->Open(open);
        absl::MutexLock lock(&opening->mu);
        opening->session = std::move(session);
        opening->done = true;
      });
  if (!submitted.ok()) Failed(submitted);
}

bool SessionSource::TakeSession(absl::Time deadline) {
  if (opening_ == nullptr) return true;
  {
    absl::MutexLock lock(&opening_->mu);
    if (!opening_->mu.AwaitWithDeadline(absl::Condition(&opening_->done),
                                        deadline)) {
      return false;
    }
  }
  const std::shared_ptr<Opening> opening = std::move(opening_);
  absl::MutexLock lock(&opening->mu);
  if (opening->session.ok()) {
    session_ = *std::move(opening->session);
  } else {
    Failed(opening->session.status());
  }
  return true;
}

void SessionSource::Failed(const absl::Status& status) {
  opening_.reset();
  EndSession();
  if (service_.on_failed) service_.on_failed(status.code());
  if (!std::exchange(logged_, true)) {
    FORETOKEN_LOG(kInfo, DrafterName(id_), ": no draft: ", status.ToString());
  }
  given_up_ = !absl::IsResourceExhausted(status);
  asks_to_skip_ = kAsksBeforeAnother;
}

// What a session leaves behind for later ones takes its time.
void SessionSource::EndSession() {
  if (session_ == nullptr) return;
  auto last =
      std::make_shared<std::unique_ptr<DraftSession>>(std::move(session_));
  service_.workers->Submit([last] { last->reset(); }).IgnoreError();
}

void SessionSource::Ask(const DraftRound& round) {
  open_.tokens.insert(open_.tokens.end(), round.committed.begin(),
                      round.committed.end());
  outcome_ =
      round.max_nodes > 0 ? DraftOutcome::kRefused : DraftOutcome::kNotAsked;
  pending_ = false;
  if (given_up_) return;
  if (session_ == nullptr && opening_ == nullptr) {
    if (--asks_to_skip_ <= 0) Open();
    return;
  }
  std::vector<TokenId> unheard = std::exchange(round_.committed, {});
  unheard.insert(unheard.end(), round.committed.begin(), round.committed.end());
  round_ = round;
  round_.committed = std::move(unheard);
  pending_ = true;
  if (!TakeSession(absl::InfinitePast())) return;
  RunRound();
}

void SessionSource::RunRound() {
  pending_ = false;
  if (session_ == nullptr) return;
  const absl::Time start = clock_();
  answer_.Clear();
  const absl::Status status = session_->Round(round_, answer_);
  round_.committed.clear();
  if (!status.ok()) {
    outcome_ = DraftOutcome::kBroken;
    Failed(status);
    return;
  }
  latency_ = clock_() - start;
  if (service_.on_answer) service_.on_answer(answer_);
  if (round_.max_nodes > 0) outcome_ = DraftOutcome::kAnswered;
}

DraftOutcome SessionSource::Collect(absl::Time deadline, SourceDraft& draft) {
  draft.Clear();
  if (pending_ && round_.max_nodes > 0) {
    if (!TakeSession(deadline)) return DraftOutcome::kLate;
    RunRound();
  }
  if (outcome_ != DraftOutcome::kAnswered) return outcome_;
  std::swap(draft.tree, answer_.tree);
  std::swap(draft.phrases, answer_.phrases);
  draft.latency = latency_;
  return DraftOutcome::kAnswered;
}

}  // namespace foretoken::orchestrator
