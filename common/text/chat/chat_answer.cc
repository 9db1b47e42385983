#include "common/text/chat/chat_answer.h"

#include <iterator>
#include <utility>

namespace foretoken {

ChatAnswer::ChatAnswer(const ModelChat& chat, const ToolNames& tools,
                       uint64_t id_seed, ToolCallParser::Fences fences)
    : with_tools_(!tools.empty()),
      controls_(chat.tokenizer(), chat.tool_call_controls()),
      parser_(ToolCallParser::Create(
          with_tools_ ? chat.tool_call_form() : ToolCallForm::kNone, id_seed,
          tools, fences)) {}

AnswerDelta ChatAnswer::Take(absl::Span<const TokenId> ids,
                             absl::string_view text) {
  if (!with_tools_) return parser_->Add(text);
  return parser_->Add(controls_.Take(ids, text));
}

AnswerDelta ChatAnswer::Finish() {
  AnswerDelta delta;
  if (with_tools_) delta = parser_->Add(controls_.Finish());
  AnswerDelta last = parser_->Finish();
  delta.content += last.content;
  std::move(last.tool_calls.begin(), last.tool_calls.end(),
            std::back_inserter(delta.tool_calls));
  return delta;
}

}  // namespace foretoken
