// Parts that the answers of all endpoints share: usage, statistics, tokens.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_ANSWER_PARTS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_ANSWER_PARTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/generation/generation.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/chat_output.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {

// "stop" or "length".
const char* FinishName(FinishReason reason);
// The same of a chat; "tool_calls" for an answer that ends by itself and holds
// some, "length" for one with a call whose arguments are not whole.
const char* FinishName(FinishReason reason, const ChatSplitter& output);

// The name of a token's drafter; "target" for the target model's own.
const char* ShownDrafter(DrafterId drafter);

// The results of all choices. Thread-compatible.
class Results {
 public:
  explicit Results(const ApiRequest& request)
      : n_(request.n), summaries_(static_cast<size_t>(request.choices())) {}

  void Set(int64_t choice, const GenerationSummary& summary);
  // Counts the tokens of a choice of a model that thinks. Once for each choice.
  void AddReasoning(int64_t tokens) {
    reasoning_tokens_ = reasoning_tokens_.value_or(0) + tokens;
  }
  const GenerationSummary& Of(int64_t choice) const {
    return summaries_[static_cast<size_t>(choice)];
  }
  int64_t size() const { return static_cast<int64_t>(summaries_.size()); }

  // {"prompt_tokens", "completion_tokens", "total_tokens",
  // "prompt_tokens_details": {"cached_tokens"}}; a prompt counts once, however
  // many choices it has. A model that thinks adds
  // "completion_tokens_details": {"reasoning_tokens"}.
  Json Usage() const;
  // The extension of a whole answer: of several choices the sums, the times of
  // the request, and "choices" with those of each.
  Json Extension(const AnswerTimes& times) const;

 private:
  const int64_t n_;
  std::vector<GenerationSummary> summaries_;
  std::optional<int64_t> reasoning_tokens_;  // of all choices
};

// The end of a stream of chunks: one with the usage, if that was asked for, and
// [DONE]. `head`: of every chunk, up to its choices.
void AppendStreamEnd(const ApiRequest& request, absl::string_view head,
                     const Results& results, std::string& out);

// The extension of one choice: mode, accept length, tokens by drafter, timings,
// seed.
Json ExtensionOf(const GenerationSummary& summary);

// The text of each token of one choice, for those who ask for it: pieces that
// join to the output. A character of several tokens is in the last of them.
// Owned by one thread.
class TokenPieces {
 public:
  // `tokenizer` may be null: no texts then.
  explicit TokenPieces(const Tokenizer* tokenizer);

  // Appends {"id", "text", "drafter"} of each of the delta's tokens, joined by
  // commas.
  void Append(const GenerationDelta& delta, std::string& out);

 private:
  std::optional<Detokenizer> detokenizer_;
};

// The extension of a streamed chunk, {"tokens": [...], "rounds": [...]}, each
// of them if it was asked for; nothing if the delta has neither. True if it
// appended something.
bool AppendChunkExtension(const ApiRequest& request,
                          const GenerationDelta& delta, const TokenTexts& texts,
                          TokenPieces& pieces, std::string& out);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_ANSWER_PARTS_H_
