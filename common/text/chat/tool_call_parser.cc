#include "common/text/chat/tool_call_parser.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/text/chat/json_scanner.h"
#include "common/text/chat/tool_call_forms.h"

namespace foretoken {
namespace {

// For answers without tool calls.
class ContentParser : public ToolCallParser {
 public:
  AnswerDelta Add(absl::string_view text) override {
    return {std::string(text), {}, {}};
  }
  AnswerDelta Finish() override { return {}; }
  int calls() const override { return 0; }
  int whole_calls() const override { return 0; }
};

}  // namespace

std::unique_ptr<ToolCallParser> ToolCallParser::Create(ToolCallForm form,
                                                       uint64_t id_seed,
                                                       const ToolNames& offered,
                                                       Fences fences) {
  if (offered.empty()) return std::make_unique<ContentParser>();
  switch (form) {
    case ToolCallForm::kNone:
      break;
    case ToolCallForm::kLlama3:
      return MakeLlama3Parser(id_seed, offered, fences);
    case ToolCallForm::kHermes:
      return MakeHermesParser(id_seed, offered, fences);
    case ToolCallForm::kMistral:
      return MakeMistralParser(id_seed, offered, fences);
  }
  return std::make_unique<ContentParser>();
}

void ContentReader::Pass(absl::string_view text, ToolCallWriter& writer) {
  writer.Content(std::exchange(spaces_, {}));
  writer.Content(text);
}

// Content is passed on at once, except for bytes that may begin a tag and white
// space, which is dropped if a call follows. At most kMaxSpaces blanks are
// held.
bool ContentReader::Take(char c, ToolCallWriter& writer) {
  const size_t before = matcher_.matched();
  if (matcher_.Take(c)) return true;
  // Three cases: the tag goes on (hold the byte), it broke off (pass on what
  // was matched), or no tag has begun.
  if (matcher_.matched() == before + 1) return false;
  if (before > 0) Pass(matcher_.tag().substr(0, before), writer);
  if (matcher_.matched() > 0) return false;
  if (!IsJsonSpace(c)) {
    Pass(absl::string_view(&c, 1), writer);
    return false;
  }
  spaces_.push_back(c);
  if (spaces_.size() > kMaxSpaces) {
    writer.Content(spaces_.front());
    spaces_.erase(0, 1);
  }
  return false;
}

std::string ContentReader::TakeTag() {
  std::string tag = std::exchange(spaces_, {});
  absl::StrAppend(&tag, matcher_.tag());
  return tag;
}

void ContentReader::End(ToolCallWriter& writer) {
  // White space after a call is not content.
  if (matcher_.matched() == 0 && writer.calls() > 0) return;
  Pass(matcher_.tag().substr(0, matcher_.matched()), writer);
}

}  // namespace foretoken
