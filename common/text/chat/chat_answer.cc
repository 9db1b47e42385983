#include "common/text/chat/chat_answer.h"

#include <iterator>
#include <utility>

namespace foretoken {
namespace {

ControlTokens ControlsOf(const ModelChat& chat, bool with_tools) {
  ControlTokens controls = chat.thinking_controls();
  if (with_tools) {
    controls.insert(controls.end(), chat.tool_call_controls().begin(),
                    chat.tool_call_controls().end());
  }
  return controls;
}

}  // namespace

ChatAnswer::ChatAnswer(const ModelChat& chat, const ToolNames& tools,
                       uint64_t id_seed, const ChatAnswerOptions& options)
    : verbatim_(options.thinking.verbatim),
      controls_(ControlsOf(chat, /*with_tools=*/!tools.empty())),
      spelled_(chat.tokenizer(), controls_),
      parser_(ToolCallParser::Create(
          tools.empty() ? ToolCallForm::kNone : chat.tool_call_form(), id_seed,
          tools, options.fences)) {
  if (!options.reads_thinking || !chat.thinking().has_value()) return;
  thinking_.emplace(*chat.thinking(), options.thinking);
  thinking_tokens_.emplace(chat.tokenizer(), controls_, *thinking_);
}

AnswerDelta ChatAnswer::Take(absl::Span<const TokenId> ids,
                             absl::string_view text) {
  const std::string spelled = spelled_.Take(ids, text);
  if (!thinking_.has_value()) return parser_->Add(spelled);
  ThinkingSplitter::Parts parts = thinking_->Add(spelled);
  thinking_tokens_->Take(ids);
  return Join(std::move(parts));
}

AnswerDelta ChatAnswer::Finish() {
  AnswerDelta delta;
  if (thinking_.has_value()) {
    ThinkingSplitter::Parts parts = thinking_->Add(spelled_.Finish());
    ThinkingSplitter::Parts last = thinking_->Finish();
    thinking_tokens_->Finish();
    delta =
        Join({parts.thinking + last.thinking, parts.content + last.content});
  } else {
    delta = parser_->Add(spelled_.Finish());
  }
  AnswerDelta last = parser_->Finish();
  delta.content += last.content;
  std::move(last.tool_calls.begin(), last.tool_calls.end(),
            std::back_inserter(delta.tool_calls));
  return delta;
}

AnswerDelta ChatAnswer::Join(ThinkingSplitter::Parts parts) {
  AnswerDelta delta = parser_->Add(parts.content);
  if (verbatim_) {
    delta.content.insert(0, parts.thinking);
  } else {
    delta.reasoning = std::move(parts.thinking);
  }
  return delta;
}

}  // namespace foretoken
