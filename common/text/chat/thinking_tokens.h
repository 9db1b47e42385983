// ThinkingTokens: counts the tokens of an answer that the model thinks with.
//
// Those are the tokens whose text begins before the end of the closing tag, so
// that the tags count, and so does a token with the end of the tag and the
// beginning of the answer. A thinking that is never closed has all tokens of
// its answer, the end token included.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_THINKING_TOKENS_H_
#define FORETOKEN_COMMON_TEXT_CHAT_THINKING_TOKENS_H_

#include <cstdint>
#include <deque>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/text/chat/spelled_controls.h"
#include "common/text/chat/thinking_splitter.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"

namespace foretoken {

class ThinkingTokens {
 public:
  // `controls`: those that the text spells, which `splitter` splits. Both, and
  // the tokenizer, must outlive this object.
  ThinkingTokens(const Tokenizer& tokenizer, const ControlTokens& controls,
                 const ThinkingSplitter& splitter)
      : controls_(controls),
        splitter_(splitter),
        detokenizer_(tokenizer, Detokenizer::Start::kBehindPrompt) {}

  // The next tokens, after the splitter was given the text that came with them.
  void Take(absl::Span<const TokenId> ids);
  // The end of the answer, after that of the splitter. Once.
  void Finish();
  // Those that are certain so far, from the answer's beginning.
  int64_t count() const { return count_; }

 private:
  // Tokens that begin at one place of the text; all but the last have none.
  struct Place {
    int64_t start = 0;
    int64_t tokens = 0;
  };

  // Bytes that the token adds to the spelled text.
  int64_t BytesOf(TokenId id);

  const ControlTokens& controls_;
  const ThinkingSplitter& splitter_;
  Detokenizer detokenizer_;
  int64_t bytes_ = 0;  // of all tokens, as text
  std::deque<Place> undecided_;
  int64_t count_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_THINKING_TOKENS_H_
