#include "services/orchestrator/core/round/grammar_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace foretoken::orchestrator {
namespace {

// Output tokens before the bytes that are encoded with them: how a tokenizer
// splits a text depends on the word that it is in.
constexpr size_t kContextTokens = 8;
// Longest forced text that is drafted, in bytes.
constexpr size_t kMaxBytes = 1024;
// Claim of a token, given those before it. The last one may be longer in the
// model's own text, since other bytes can follow those that are forced.
constexpr float kClaim = 0.97f;
constexpr float kLastClaim = 0.6f;

// Without the bytes of a character that `text` ends in the middle of.
absl::string_view WholeCharacters(absl::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(text.size(), 3); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) break;
    // Continuation bytes are 10xxxxxx; a lead byte says how long its character
    // is.
    if (byte < 0xC0) continue;  // inside a character
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    if (length > back) text.remove_suffix(back);
    break;
  }
  return text;
}

// The last of `ids` whose bytes are the last `bytes` of the text; empty if none
// begins there.
std::vector<TokenId> LastOf(const Tokenizer& tokenizer,
                            const std::vector<TokenId>& ids, size_t bytes) {
  size_t first = ids.size();
  while (first > 0 && bytes > 0) {
    const size_t size = tokenizer.TokenBytes(ids[first - 1]).size();
    // A token that begins before the bytes would change tokens that are
    // committed.
    if (size == 0 || size > bytes) return {};
    bytes -= size;
    --first;
  }
  if (bytes > 0) return {};
  return {ids.begin() + static_cast<int64_t>(first), ids.end()};
}

}  // namespace

std::vector<TokenId> TokensAfter(const Tokenizer& tokenizer,
                                 absl::Span<const TokenId> output,
                                 absl::string_view bytes) {
  bytes = WholeCharacters(bytes);
  if (bytes.empty()) return {};
  std::string text;
  for (const TokenId token : output.subspan(
           output.size() - std::min(output.size(), kContextTokens))) {
    absl::StrAppend(&text, tokenizer.TokenBytes(token));
  }
  absl::StrAppend(&text, bytes);
  std::vector<TokenId> tokens =
      LastOf(tokenizer, tokenizer.Encode(text), bytes.size());
  // The output ends inside what would be one token.
  if (tokens.empty()) {
    tokens = LastOf(tokenizer, tokenizer.Encode(bytes), bytes.size());
  }
  return tokens;
}

GrammarSource::GrammarSource(
    std::shared_ptr<grammar::ConstrainedText> constraint,
    const Tokenizer& tokenizer, Clock clock)
    : constraint_(std::move(constraint)),
      tokenizer_(tokenizer),
      clock_(std::move(clock)) {}

void GrammarSource::Start(const DraftOpen& open,
                          absl::Span<const TokenId> /*text*/) {
  prompt_length_ = static_cast<size_t>(open.prompt_length);
}

void GrammarSource::Ask(const DraftRound& round,
                        absl::Span<const TokenId> text) {
  draft_.Clear();
  asked_ = round.max_nodes > 0;
  if (!asked_) return;
  const absl::Time start = clock_();
  const std::vector<TokenId> tokens = TokensAfter(
      tokenizer_, text.subspan(std::min(prompt_length_, text.size())),
      constraint_->Forced(kMaxBytes));
  int32_t parent = kRootParent;
  float chance = 1.0f;
  // The grammar may force more text than the round has nodes for; the rest is
  // forced again next time.
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (draft_.tree.size() == round.max_nodes) break;
    chance *= i + 1 < tokens.size() ? kClaim : kLastClaim;
    parent = draft_.tree.Add(tokens[i], parent, chance);
  }
  draft_.latency = clock_() - start;
}

DraftOutcome GrammarSource::Collect(absl::Time /*deadline*/,
                                    SourceDraft& draft) {
  if (!std::exchange(asked_, false)) {
    draft.Clear();
    return DraftOutcome::kNotAsked;
  }
  // Swap: both drafts keep their buffers from round to round.
  std::swap(draft, draft_);
  draft_.Clear();
  return DraftOutcome::kAnswered;
}

}  // namespace foretoken::orchestrator
