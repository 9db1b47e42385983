// SpelledControls: the text of an answer with some of its control tokens
// spelled out. Generated text omits special tokens, but [TOOL_CALLS] and
// <|python_tag|> tell where tool calls begin.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_SPELLED_CONTROLS_H_
#define FORETOKEN_COMMON_TEXT_CHAT_SPELLED_CONTROLS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// Tokens and their texts.
using ControlTokens = std::vector<std::pair<TokenId, std::string>>;

// The special tokens of the vocabulary with one of these texts. Walks through
// the whole vocabulary: once for a model.
ControlTokens FindControls(const Tokenizer& tokenizer,
                           absl::Span<const absl::string_view> texts);

class SpelledControls {
 public:
  // Receives the pieces of the text, in order: text as it was generated, or the
  // spelling of one control token.
  using Sink = absl::FunctionRef<void(absl::string_view text, bool is_control)>;

  // Both must outlive this object.
  SpelledControls(const Tokenizer& tokenizer, const ControlTokens& controls)
      : controls_(controls),
        detokenizer_(tokenizer, Detokenizer::Start::kBehindPrompt) {}

  // Tokens and text of one delta of an answer, in order. Text and the token
  // that wrote it may come with different deltas, but the text after a control
  // token not before that token. `sink` gets the text with the control tokens
  // in their places.
  void Take(absl::Span<const TokenId> ids, absl::string_view text, Sink sink);
  // The end of the answer: `sink` gets the control tokens after its text.
  // Once.
  void Finish(Sink sink);

 private:
  const ControlTokens& controls_;
  Detokenizer detokenizer_;
  int64_t decoded_bytes_ = 0;  // text of all tokens so far
  int64_t taken_bytes_ = 0;    // text that Take was given
  // Offset in the answer's text, and the spelling that belongs there.
  std::deque<std::pair<int64_t, absl::string_view>> places_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_SPELLED_CONTROLS_H_
