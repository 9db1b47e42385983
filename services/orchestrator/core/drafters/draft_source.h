// DraftSource: a drafter as a request's round sees it, in this process or
// behind a network.
//
//   Start -> (Ask -> Collect?)* -> destruction
//
// Start and Ask return at once; all sources are asked before any is waited for.
// Failures cost speed only: a source without a draft says why, and the round
// goes on without it.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_SOURCE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_SOURCE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/drafter.h"
#include "common/speculation/drafter_id.h"

namespace foretoken::orchestrator {

// Outcome of an ask.
enum class DraftOutcome {
  kAnswered,     // by a draft for the asked length, maybe an empty one
  kNotAsked,     // its draft was not wanted
  kLate,         // no answer by the deadline
  kRefused,      // the service is full or does not take the request
  kBroken,       // the service is gone, or answered nonsense
  kBreakerOpen,  // not asked, because the service failed too often
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
  std::vector<Phrase> phrases;  // gained by the source's working pool
  absl::Duration latency;       // from the ask to the answer
  bool shortened = false;       // its time ran out before its mode was done

  void Clear() {
    tree.Clear();
    window.Clear();
    phrases.clear();
    latency = absl::ZeroDuration();
    shortened = false;
  }
};

// A text that a source has read before its first draft.
struct TextRead {
  int64_t tokens = 0;
  absl::Duration time;
};

// Texts of at most this many tokens are always read, and at once: it takes few
// rounds, and tells what reading takes.
inline constexpr int64_t kShortText = 256;

// Moves phrases to the end of `waiting`, up to its maximum size; the rest are
// dropped.
void KeepPhrases(std::vector<Phrase> phrases, std::vector<Phrase>& waiting);

class DraftSource {
 public:
  virtual ~DraftSource() = default;

  virtual DrafterId id() const = 0;
  // False for a source that only stores what others found (a shared phrase
  // pool): it gets committed tokens and phrases, and is never collected.
  virtual bool drafts() const { return true; }
  // True if it needs VerifiedTree with the target's token of every row.
  virtual bool needs_rows() const { return false; }
  // True if it also reads the target's candidates of every row.
  virtual bool reads_candidates() const { return false; }
  // True if it reads what other sources propose for the round, and is thus
  // asked after they have answered. It must not need rows.
  virtual bool reads_hints() const { return false; }
  // True if it reads what tokens and rows cost (DraftRound).
  virtual bool reads_costs() const { return false; }
  // False if its next Ask makes it read the whole text.
  virtual bool has_text() const { return true; }
  // A text that it has read since the last call, if its time was measured.
  virtual std::optional<TextRead> TakeTextRead() { return std::nullopt; }

  // Starts a request, whose prompt is `text` in place of open.tokens; `text`
  // must stay valid until the first Ask.
  virtual void Start(const DraftOpen& open, absl::Span<const TokenId> text) = 0;

  // Commits and, if max_nodes > 0, asks for a draft. `text` is the prompt and
  // all committed tokens, round.length in all; it is read only during the call.
  virtual void Ask(const DraftRound& round, absl::Span<const TokenId> text) = 0;

  // Replaces `draft` by the answer to the last Ask, waiting for it until
  // `deadline` at most; answers to earlier ones are dropped. `draft` is empty
  // unless the outcome is kAnswered.
  virtual DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) = 0;
};

// A Drafter that runs in this thread. `clock` times it. The drafter is shared
// because it may outlive the request (foretoken-lab replay).
class LocalSource final : public DraftSource {
 public:
  LocalSource(DrafterId id, std::shared_ptr<Drafter> drafter, Clock clock);

  DrafterId id() const override { return id_; }
  bool needs_rows() const override { return reads_candidates(); }
  bool reads_candidates() const override {
    return drafter_->reads_candidates();
  }
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

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_SOURCE_H_
