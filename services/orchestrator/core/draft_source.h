// DraftSource: a drafter as a request's round sees it, in this process or
// behind a network.
//
//   Start -> (Ask -> Collect?)* -> destruction
//
// Start and Ask return at once; all sources are asked before any is waited for.
// What fails here costs speed only: a source that has no draft says why, and
// the round goes on without it.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_SOURCE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_SOURCE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/drafter.h"
#include "common/speculation/drafter_id.h"

namespace foretoken::orchestrator {

// What became of an ask.
enum class DraftOutcome {
  kAnswered,     // by a draft for the asked length, maybe an empty one
  kNotAsked,     // its draft was not wanted
  kLate,         // no answer by the deadline
  kRefused,      // the service is full or does not take the request
  kBroken,       // the service is gone, or answered nonsense
  kBreakerOpen,  // the service failed too often: it was left alone
};
inline constexpr std::array<const char*, 6> kOutcomeNames = {
    "answered", "not_asked", "late", "refused", "broken", "breaker_open"};
inline const char* OutcomeName(DraftOutcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}
// The round went on without a draft that was wanted.
inline bool IsDegraded(DraftOutcome outcome) {
  return outcome >= DraftOutcome::kLate;
}

struct SourceDraft {
  DraftTree tree;
  DraftTree window;             // rows that are read and never accepted
  std::vector<Phrase> phrases;  // what the source's working pool gained
  absl::Duration latency;       // from the ask to the answer

  void Clear() {
    tree.Clear();
    window.Clear();
    phrases.clear();
    latency = absl::ZeroDuration();
  }
};

// Moves phrases to the end of `waiting`, as many as may wait to be passed on;
// the rest are dropped.
void KeepPhrases(std::vector<Phrase> phrases, std::vector<Phrase>& waiting);

class DraftSource {
 public:
  virtual ~DraftSource() = default;

  virtual DrafterId id() const = 0;
  // False for one that only takes what others found (a shared phrase pool): it
  // is told what was committed, with the others' phrases, and never collected.
  virtual bool drafts() const { return true; }
  // Wants VerifiedTree, the target's token of every row included.
  virtual bool needs_rows() const { return false; }

  // A new request, whose prompt is `text` in place of open.tokens; it stays
  // where it is until the first Ask.
  virtual void Start(const DraftOpen& open, absl::Span<const TokenId> text) = 0;

  // Commits and, where max_nodes > 0, asks for a draft. `text` is the prompt
  // with all that was committed, round.length tokens; it is read during the
  // call alone.
  virtual void Ask(const DraftRound& round, absl::Span<const TokenId> text) = 0;

  // Replaces `draft` by the answer to the last Ask, waiting for it until
  // `deadline` at most; answers to earlier ones are dropped. `draft` is empty
  // unless the outcome is kAnswered.
  virtual DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) = 0;
};

// A Drafter that runs in this thread. `clock` times it. The drafter is shared,
// for it may outlive the request (foretoken bench replay).
class LocalSource final : public DraftSource {
 public:
  LocalSource(DrafterId id, std::shared_ptr<Drafter> drafter, Clock clock);

  DrafterId id() const override { return id_; }
  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override;
  void Ask(const DraftRound& round, absl::Span<const TokenId> text) override;
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override;

 private:
  const DrafterId id_;
  const std::shared_ptr<Drafter> drafter_;
  const Clock clock_;
  int32_t max_nodes_ = 0;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFT_SOURCE_H_
