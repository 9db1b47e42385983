// Parsers of the single forms, and what they share. For ToolCallParser::Create.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_FORMS_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_FORMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/text/chat/tag_matcher.h"
#include "common/text/chat/tool_call_parser.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

std::unique_ptr<ToolCallParser> MakeLlama3Parser(uint64_t id_seed,
                                                 const ToolNames& offered,
                                                 ToolCallParser::Fences fences);
std::unique_ptr<ToolCallParser> MakeHermesParser(uint64_t id_seed,
                                                 const ToolNames& offered,
                                                 ToolCallParser::Fences fences);
std::unique_ptr<ToolCallParser> MakeMistralParser(
    uint64_t id_seed, const ToolNames& offered, ToolCallParser::Fences fences);

// A parser that looks at one byte at a time, so that it cannot depend on how
// the text is cut.
class ByteParser : public ToolCallParser {
 public:
  AnswerDelta Add(absl::string_view text) final {
    for (const char c : text) Take(c);
    return writer_.Take();
  }
  AnswerDelta Finish() final {
    End();
    writer_.EndContent();
    return writer_.Take();
  }
  int calls() const final { return writer_.calls(); }
  int whole_calls() const final { return writer_.whole_calls(); }

 protected:
  ByteParser(ToolCallWriter::IdForm form, uint64_t id_seed,
             const ToolNames& offered, Fences fences)
      : writer_(form, id_seed, offered, fences) {}

  virtual void Take(char c) = 0;
  virtual void End() = 0;

  ToolCallWriter writer_;
};

// Content up to a tag. White space directly before the tag goes with the call.
class ContentReader {
 public:
  // More than that of it is content.
  static constexpr size_t kMaxSpaces = 64;

  explicit ContentReader(absl::string_view tag) : matcher_(tag) {}

  // True for the byte that completes the tag.
  bool Take(char c, ToolCallWriter& writer);
  // The tag that was completed with the white space before it: content, if no
  // call follows.
  std::string TakeTag();
  // The end of the text.
  void End(ToolCallWriter& writer);

 private:
  void Pass(absl::string_view text, ToolCallWriter& writer);

  TagMatcher matcher_;
  std::string spaces_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_FORMS_H_
