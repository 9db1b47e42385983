// OutputText: from committed tokens to the text and ids that may be shown.
//
// Joins the detokenizer and the stop strings. Text that may yet turn out to
// begin a stop string is held back, and so are the tokens that wrote it. When a
// stop string is complete the text ends before it and the ids are those whose
// bytes end before it.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_OUTPUT_TEXT_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_OUTPUT_TEXT_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/text/detokenizer.h"
#include "common/text/stop_matcher.h"
#include "common/text/tokenizer.h"

namespace foretoken::orchestrator {

class OutputText {
 public:
  // `tokenizer` may be null: no text then. Text of the first `unchecked_tokens`
  // tokens (min_tokens) is not matched against stop strings.
  OutputText(const Tokenizer* tokenizer, StopMatcher stop_matcher,
             int64_t unchecked_tokens);

  // Adds one committed token. True if it completed a stop string; nothing may
  // be added after that.
  bool Push(TokenId token);
  // Adds a token that writes nothing: an end token.
  void PushSilent();
  // Ends the output and releases the text held back. True if that completed a
  // stop string.
  bool Finish();

  // The stop string that ended the output; empty: none has.
  const std::string& stop_string() const { return stop_matcher_.match(); }

  // Takes the text that may be shown.
  std::string TakeText();
  // Takes the number of further tokens that may be shown, in order.
  int64_t TakeTokens();

 private:
  // End of a token's bytes in the text. After an incomplete character it is not
  // known yet: `whole` if those bytes turn out to be text, `replaced` if each
  // broken part becomes U+FFFD.
  struct Held {
    uint64_t whole;
    uint64_t replaced;
  };

  void Hold();
  void Settle(absl::string_view waiting, absl::string_view text);
  void ReleaseTokens();

  const Tokenizer* const tokenizer_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher stop_matcher_;
  int64_t unchecked_tokens_;
  uint64_t text_bytes_ = 0;      // written so far
  uint64_t released_bytes_ = 0;  // of them, those that may be shown
  std::string released_;         // not yet taken
  std::deque<Held> held_;        // tokens not yet released
  size_t waiting_tokens_ = 0;    // of them, the last: not yet settled
  int64_t released_tokens_ = 0;  // not yet taken
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_OUTPUT_TEXT_H_
