// ChatAnswer: tokens and text of one answer, as they are generated, as content
// and tool calls.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_CHAT_ANSWER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_CHAT_ANSWER_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/text/chat/model_chat.h"
#include "common/text/chat/spelled_controls.h"
#include "common/text/chat/tool_call_parser.h"

namespace foretoken {

class ChatAnswer {
 public:
  // `tools`: that may be called; without, all of the answer is content. Ids of
  // calls are drawn from `id_seed`. References must outlive this object.
  ChatAnswer(const ModelChat& chat, const ToolNames& tools, uint64_t id_seed,
             ToolCallParser::Fences fences = ToolCallParser::Fences::kRead);

  // The next tokens and text, as GenerationDelta has them.
  AnswerDelta Take(absl::Span<const TokenId> ids, absl::string_view text);
  // The end of the answer. Once.
  AnswerDelta Finish();
  // See ToolCallParser.
  int calls() const { return parser_->calls(); }
  bool cut_off() const { return parser_->cut_off(); }
  int whole_calls() const { return parser_->whole_calls(); }

 private:
  const bool with_tools_;
  SpelledControls controls_;
  const std::unique_ptr<ToolCallParser> parser_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_CHAT_ANSWER_H_
