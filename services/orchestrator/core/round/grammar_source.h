// GrammarSource: drafts what the request's constraint forces. Where the grammar
// leaves the text no choice, its next bytes are known; as the model's own
// tokenizer splits them they are a chain that is nearly always accepted.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_GRAMMAR_SOURCE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_GRAMMAR_SOURCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/types.h"
#include "common/grammar/constrained_text.h"
#include "common/text/tokenizer.h"
#include "services/orchestrator/core/drafters/draft_source.h"

namespace foretoken::orchestrator {

// The tokens of `bytes` after `output`, as the tokenizer splits the whole;
// empty if it joins the two in one token. Bytes of a character that is not
// complete at their end are left out.
std::vector<TokenId> TokensAfter(const Tokenizer& tokenizer,
                                 absl::Span<const TokenId> output,
                                 absl::string_view bytes);

class GrammarSource final : public DraftSource {
 public:
  // `constraint` follows the request's output: its committed tokens are
  // appended before each Ask. `tokenizer` must outlive the source.
  GrammarSource(std::shared_ptr<grammar::ConstrainedText> constraint,
                const Tokenizer& tokenizer, Clock clock);

  DrafterId id() const override { return DrafterId::kGrammar; }
  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override;
  void Ask(const DraftRound& round, absl::Span<const TokenId> text) override;
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override;

 private:
  const std::shared_ptr<grammar::ConstrainedText> constraint_;
  const Tokenizer& tokenizer_;
  const Clock clock_;
  size_t prompt_length_ = 0;
  bool asked_ = false;
  SourceDraft draft_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_GRAMMAR_SOURCE_H_
