#include "services/orchestrator/core/drafters/served_source.h"

#include <algorithm>
#include <utility>

namespace foretoken::orchestrator {
ServedSource::ServedSource(ServedSourceOptions options, DraftReplicas& service)
    : options_(std::move(options)),
      policy_(
          service, [this] { return Text(); }, options_.cancelled) {}

ServedSource::~ServedSource() {
  fetch_.reset();
  // Send the rest of the output: the service may keep it for later requests.
  if (!policy_.open() || unsent_.empty()) return;
  DraftRound last;
  last.length = length_;
  // Nothing waits for an answer: the session ends when this object has sent it.
  policy_.Tell(Next(last));
}

void ServedSource::Start(const DraftOpen& open,
                         absl::Span<const TokenId> text) {
  text_ = text;
  open_ = open;
  if (options_.keeps_only_pages && open_.cache_scope.empty()) {
    open_.cache_scope = open.page_scope;
  }
  policy_.SetScope(open_.cache_scope);
  open_.mode = options_.mode;
  open_.tokenizer_fingerprint = options_.tokenizer_fingerprint;
  const bool ahead =
      !options_.opens_late || static_cast<int64_t>(text.size()) <= kShortText;
  if (options_.phrases == nullptr || open.cache_scope.empty()) {
    if (ahead) policy_.OpenAhead();
    return;
  }
  // Until the fetch has ended, only its callback may use this object.
  fetch_ = options_.phrases->GetPhrases(
      {open.cache_scope, open_.tokenizer_fingerprint, options_.phrase_tokens,
       options_.warm_phrases},
      [this, ahead](std::vector<Phrase> phrases) {
        // Phrases arrive newest first and are inserted oldest first.
        std::reverse(phrases.begin(), phrases.end());
        open_.phrases = std::move(phrases);
        if (ahead) policy_.OpenAhead();
      });
}

DraftOpen ServedSource::Text() {
  unsent_.clear();
  fresh_ = true;
  DraftOpen open = open_;
  open.tokens.assign(text_.begin(), text_.end());
  return open;
}

DraftRound ServedSource::Next(const DraftRound& round) {
  DraftRound next;
  next.length = round.length;
  next.committed = std::exchange(unsent_, {});
  // A session does not know trees that were verified before it was opened.
  if (!std::exchange(fresh_, false)) {
    next.verified.tree = round.verified.tree;
    next.verified.row_tokens = round.verified.row_tokens;
    next.verified.path = round.verified.path;
    if (options_.reads_candidates) {
      next.verified.candidates = round.verified.candidates;
    }
  }
  next.max_nodes = round.max_nodes;
  next.budget = round.budget;
  next.phrases = std::exchange(phrases_, {});
  if (options_.reads_hints) next.hints = round.hints;
  if (options_.reads_costs) {
    next.token_time = round.token_time;
    next.row_ms = round.row_ms;
  }
  return next;
}

void ServedSource::Ask(const DraftRound& round,
                       absl::Span<const TokenId> text) {
  // Ends the callback that may still use this object, before anything here is
  // read.
  fetch_.reset();
  text_ = text;
  length_ = round.length;
  unsent_.insert(unsent_.end(), round.committed.begin(), round.committed.end());
  KeepPhrases(round.phrases, phrases_);
  // A pass costs nothing: what was committed is kept in unsent_ and sent with
  // the next ask.
  if (drafts() && round.max_nodes == 0) {
    policy_.Pass();
  } else if (policy_.Begin()) {
    DraftRound next = Next(round);
    if (options_.reads_in_shadow && !policy_.has_read() &&
        length_ > kShortText) {
      // Its answer tells that the text was read, whenever that is.
      next.max_nodes = 1;
      next.budget = absl::InfiniteDuration();
      next.hints.Clear();
      policy_.Read(std::move(next));
    } else {
      policy_.Ask(std::move(next));
    }
  }
  text_ = {};
}

}  // namespace foretoken::orchestrator
