// ServedSource: a DraftSource on a session of a drafting service. It sends the
// session the tokens it has not seen, and holds no other part of the text.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_SERVED_SOURCE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_SERVED_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/drafters/ask_policy.h"
#include "services/orchestrator/core/drafters/draft_replicas.h"
#include "services/orchestrator/core/drafters/draft_source.h"

namespace foretoken::orchestrator {

struct ServedSourceOptions {
  DrafterId id = DrafterId::kFused;
  bool drafts = true;
  bool needs_rows = false;
  bool reads_candidates = false;
  bool reads_hints = false;
  bool reads_costs = false;  // what tokens and rows cost at present
  // The session is opened by the first ask, and so not before the target has
  // read the prompt: reading it takes processors that the target may share. Not
  // so with a short text.
  bool opens_late = false;
  // The service keeps nothing by scope but prefix pages.
  bool keeps_only_pages = false;
  // Rounds go on without the session until it has read the text, unless that is
  // short.
  bool reads_in_shadow = false;
  Mode mode;
  std::string tokenizer_fingerprint;
  // The working pool of a session in a cache scope starts with the scope's
  // phrases, which are fetched while the target prefills; null: empty.
  SharedPhrases* phrases = nullptr;
  int32_t warm_phrases = 0;         // maximum number
  int32_t phrase_tokens = 0;        // of this length
  std::function<bool()> cancelled;  // the request was; null: never
};

class ServedSource final : public DraftSource {
 public:
  // `service` and `options.phrases` must outlive the object.
  ServedSource(ServedSourceOptions options, DraftReplicas& service);
  ~ServedSource() override;

  DrafterId id() const override { return options_.id; }
  bool drafts() const override { return options_.drafts; }
  bool needs_rows() const override { return options_.needs_rows; }
  bool reads_candidates() const override { return options_.reads_candidates; }
  bool reads_hints() const override { return options_.reads_hints; }
  bool reads_costs() const override { return options_.reads_costs; }
  bool has_text() const override { return policy_.open(); }
  std::optional<TextRead> TakeTextRead() override {
    return policy_.TakeTextRead();
  }
  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override;
  void Ask(const DraftRound& round, absl::Span<const TokenId> text) override;
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override {
    return policy_.Collect(deadline, draft);
  }

 private:
  DraftOpen Text();
  DraftRound Next(const DraftRound& round);

  const ServedSourceOptions options_;
  DraftOpen open_;  // without tokens
  // The request's text, valid during a call and until the first one has ended.
  absl::Span<const TokenId> text_;
  int64_t length_ = 0;           // of the text
  std::vector<TokenId> unsent_;  // its end, not sent to the session yet
  std::vector<Phrase> phrases_;  // to be passed on
  bool fresh_ = false;           // the session has had no round yet
  AskPolicy policy_;
  std::unique_ptr<SharedPhrases::Fetch> fetch_;  // ends before the rest
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_SERVED_SOURCE_H_
