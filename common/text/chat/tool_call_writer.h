// ToolCallWriter: collects the parts of an answer into deltas, and draws the
// ids of its tool calls. Its content may hold calls in fenced blocks, whatever
// the model's form is.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_WRITER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/text/chat/tool_call_parser.h"

namespace foretoken {

class FencedCalls;

class ToolCallWriter {
 public:
  // call_ and 24 letters and digits, as OpenAI's, or 9 of them, which is all
  // that Mistral's templates accept.
  enum class IdForm : uint8_t { kOpenAi, kMistral };
  using Fences = ToolCallParser::Fences;  // in the content

  // `offered` must outlive the writer.
  ToolCallWriter(IdForm form, uint64_t seed, const ToolNames& offered,
                 Fences fences = Fences::kIgnored);
  ~ToolCallWriter();

  // Whether a tool of this name may be called.
  bool Offers(absl::string_view name) const {
    return offered_.find(name) != offered_.end();
  }

  void Content(absl::string_view text);
  void Content(char c) { Content(absl::string_view(&c, 1)); }
  // Content that is not searched.
  void PlainContent(absl::string_view text) {
    delta_.content.append(text.data(), text.size());
  }
  // The end of the answer. Once.
  void EndContent();
  // Begins the next call, of a tool that is offered.
  void Begin(absl::string_view name);
  // More of the arguments of the call that was begun last.
  void Arguments(absl::string_view piece);
  // They are whole.
  void End() {
    if (whole_calls_ + 1 == calls_) whole_calls_ = calls_;
  }

  int calls() const { return calls_; }
  // See ToolCallParser.
  int whole_calls() const { return whole_calls_; }
  // No further call may begin.
  bool full() const { return calls_ >= ToolCallParser::kMaxCalls; }
  AnswerDelta Take() { return std::exchange(delta_, {}); }

 private:
  std::string NewId();

  const IdForm form_;
  uint64_t state_;
  const ToolNames& offered_;
  int calls_ = 0;
  int whole_calls_ = 0;
  AnswerDelta delta_;
  const std::unique_ptr<FencedCalls> fences_;  // null: ignored
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_WRITER_H_
