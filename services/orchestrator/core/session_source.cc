#include "services/orchestrator/core/session_source.h"

#include <utility>

#include "common/base/log.h"

namespace foretoken::orchestrator {

SessionSource::SessionSource(DrafterId id, ModeSpec mode,
                             std::string tokenizer_fingerprint,
                             DraftServiceHere service,
                             std::function<absl::Time()> clock)
    : id_(id),
      mode_(std::move(mode)),
      tokenizer_fingerprint_(std::move(tokenizer_fingerprint)),
      service_(std::move(service)),
      clock_(std::move(clock)) {}

SessionSource::~SessionSource() {
  AwaitSession();
  if (session_ == nullptr) return;
  // What a session leaves behind for later ones takes its time.
  auto last =
      std::make_shared<std::unique_ptr<DraftSession>>(std::move(session_));
  service_.workers->Submit([last] { last->reset(); }).IgnoreError();
}

void SessionSource::Start(const DraftOpen& open) {
  opening_ = std::make_shared<Opening>();
  DraftOpen own = open;
  own.mode = mode_;
  own.tokenizer_fingerprint = tokenizer_fingerprint_;
  const absl::Status submitted = service_.workers->Submit(
      [opening = opening_, sessions = service_.sessions,
       request = std::move(own)]() mutable {
        auto session = sessions->Open(std::move(request));
        absl::MutexLock lock(&opening->mu);
        opening->session = std::move(session);
        opening->done = true;
      });
  if (submitted.ok()) return;
  opening_.reset();
  GiveUp(submitted);
}

bool SessionSource::AwaitSession() {
  if (opening_ != nullptr) {
    const std::shared_ptr<Opening> opening = std::move(opening_);
    absl::MutexLock lock(&opening->mu);
    opening->mu.Await(absl::Condition(&opening->done));
    if (opening->session.ok()) {
      session_ = *std::move(opening->session);
    } else {
      GiveUp(opening->session.status());
    }
  }
  return session_ != nullptr;
}

void SessionSource::GiveUp(const absl::Status& status) {
  session_.reset();
  if (std::exchange(given_up_, true)) return;
  FORETOKEN_LOG(kInfo, DrafterName(id_), ": no draft: ", status.ToString());
}

void SessionSource::Ask(const DraftRound& round) {
  outcome_ = DraftOutcome::kNotAsked;
  if (!AwaitSession()) {
    if (round.max_nodes > 0) outcome_ = DraftOutcome::kRefused;
    return;
  }
  const absl::Time start = clock_();
  answer_.Clear();
  const absl::Status status = session_->Round(round, answer_);
  if (!status.ok()) {
    GiveUp(status);
    outcome_ = DraftOutcome::kBroken;
    return;
  }
  latency_ = clock_() - start;
  if (service_.on_answer) service_.on_answer(answer_);
  if (round.max_nodes > 0) outcome_ = DraftOutcome::kAnswered;
}

DraftOutcome SessionSource::Collect(absl::Time, SourceDraft& draft) {
  draft.Clear();
  if (outcome_ != DraftOutcome::kAnswered) return outcome_;
  std::swap(draft.tree, answer_.tree);
  std::swap(draft.phrases, answer_.phrases);
  draft.latency = latency_;
  return DraftOutcome::kAnswered;
}

}  // namespace foretoken::orchestrator
