#include "common/text/chat/chat_answer.h"

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

// Tags are only spelled for a splitter to read.
ControlTokens ControlsOf(const ModelChat& chat, bool with_thinking,
                         bool with_tools) {
  ControlTokens controls;
  if (with_thinking) controls = chat.thinking_controls();
  if (with_tools) {
    controls.insert(controls.end(), chat.tool_call_controls().begin(),
                    chat.tool_call_controls().end());
  }
  return controls;
}

void Append(const ThinkingSplitter::Parts& more,
            ThinkingSplitter::Parts& parts) {
  parts.thinking += more.thinking;
  parts.content += more.content;
}

// `bytes` of content come before the delta that the calls are of.
void PutAfter(size_t bytes, std::vector<ToolCallDelta>& calls) {
  for (ToolCallDelta& call : calls) call.content_before += bytes;
}

}  // namespace

ChatAnswer::ChatAnswer(const ModelChat& chat, const ToolNames& tools,
                       uint64_t id_seed, const ChatAnswerOptions& options)
    : verbatim_(options.thinking.verbatim),
      controls_(ControlsOf(chat, options.reads_thinking,
                           /*with_tools=*/!tools.empty())),
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
  ThinkingSplitter::Parts parts;
  spelled_.Take(ids, text, [&](absl::string_view piece, bool is_control) {
    Split(piece, is_control, parts);
  });
  if (thinking_.has_value()) thinking_tokens_->Take(ids);
  return Join(std::move(parts));
}

AnswerDelta ChatAnswer::Finish() {
  ThinkingSplitter::Parts parts;
  spelled_.Finish([&](absl::string_view piece, bool is_control) {
    Split(piece, is_control, parts);
  });
  if (thinking_.has_value()) {
    Append(thinking_->Finish(), parts);
    thinking_tokens_->Finish();
  }
  AnswerDelta delta = Join(std::move(parts));
  AnswerDelta last = parser_->Finish();
  PutAfter(delta.content.size(), last.tool_calls);
  delta.content += last.content;
  std::move(last.tool_calls.begin(), last.tool_calls.end(),
            std::back_inserter(delta.tool_calls));
  return delta;
}

void ChatAnswer::Split(absl::string_view piece, bool is_control,
                       ThinkingSplitter::Parts& parts) {
  if (!thinking_.has_value()) {
    absl::StrAppend(&parts.content, piece);
  } else if (is_control && thinking_->IsTag(piece)) {
    Append(thinking_->AddTag(piece), parts);
  } else {
    Append(thinking_->Add(piece), parts);
  }
}

AnswerDelta ChatAnswer::Join(ThinkingSplitter::Parts parts) {
  AnswerDelta delta = parser_->Add(parts.content);
  if (verbatim_) {
    PutAfter(parts.thinking.size(), delta.tool_calls);
    delta.content.insert(0, parts.thinking);
  } else {
    delta.reasoning = std::move(parts.thinking);
  }
  return delta;
}

}  // namespace foretoken
