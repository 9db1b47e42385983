// ChatAnswer: tokens and text of one answer, as they are generated, as
// reasoning, content and tool calls. Calls are read in the content alone.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_CHAT_ANSWER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_CHAT_ANSWER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/text/chat/model_chat.h"
#include "common/text/chat/spelled_controls.h"
#include "common/text/chat/thinking_splitter.h"
#include "common/text/chat/thinking_tokens.h"
#include "common/text/chat/tool_call_parser.h"

namespace foretoken {

struct ChatAnswerOptions {
  ToolCallParser::Fences fences = ToolCallParser::Fences::kRead;
  // False: all is content, as for a model that does not think.
  bool reads_thinking = true;
  // Verbatim thinking is content, in which no calls are read.
  ThinkingOptions thinking = {};
};

class ChatAnswer {
 public:
  // `tools`: that may be called; without, none are read. Ids of calls are drawn
  // from `id_seed`. References must outlive this object.
  ChatAnswer(const ModelChat& chat, const ToolNames& tools, uint64_t id_seed,
             const ChatAnswerOptions& options = {});

  // The next tokens and text, as GenerationDelta has them.
  AnswerDelta Take(absl::Span<const TokenId> ids, absl::string_view text);
  // The end of the answer. Once.
  AnswerDelta Finish();
  // See ToolCallParser.
  int calls() const { return parser_->calls(); }
  bool cut_off() const { return parser_->cut_off(); }
  int whole_calls() const { return parser_->whole_calls(); }
  // See ThinkingTokens. 0 for a model that does not think.
  int64_t thinking_tokens() const {
    return thinking_tokens_.has_value() ? thinking_tokens_->count() : 0;
  }

 private:
  // A piece of the answer, as SpelledControls gives it.
  void Split(absl::string_view piece, bool is_control,
             ThinkingSplitter::Parts& parts);
  AnswerDelta Join(ThinkingSplitter::Parts parts);

  const bool verbatim_;
  const ControlTokens controls_;  // that are spelled
  SpelledControls spelled_;
  std::optional<ThinkingSplitter> thinking_;  // unset: the model does not think
  std::optional<ThinkingTokens> thinking_tokens_;
  const std::unique_ptr<ToolCallParser> parser_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_CHAT_ANSWER_H_
