// Any text as an answer with tool calls: every way to cut it gives the same
// deltas in the same order, and the parts of a call stand together.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/text/chat/tool_call_parser.h"

namespace {

using foretoken::AnswerDelta;
using foretoken::ToolCallDelta;
using foretoken::ToolCallForm;
using foretoken::ToolCallParser;

std::string Joined(ToolCallForm form, absl::string_view text, size_t step) {
  static const auto* const offered =
      new foretoken::ToolNames{"brave_search", "code_interpreter", "f", "g"};
  const auto parser = ToolCallParser::Create(form, 1, *offered);
  std::string joined;
  int begun = 0;
  bool in_call = false;  // no content since its beginning
  const auto add_text = [&](absl::string_view piece) {
    absl::StrAppend(&joined, piece);
    in_call = false;
  };
  const auto add_call = [&](const ToolCallDelta& call) {
    if (!call.id.empty()) {
      FORETOKEN_CHECK(call.index == begun && offered->count(call.name) == 1);
      ++begun;
      absl::StrAppend(&joined, "\n", call.id, call.name, "(");
      in_call = true;
    }
    FORETOKEN_CHECK(in_call && call.index == begun - 1);
    joined += call.arguments;
  };
  const auto add = [&](const AnswerDelta& delta) {
    delta.InOrder(add_text, add_call);
  };
  for (size_t at = 0; at < text.size(); at += step) {
    add(parser->Add(text.substr(at, step)));
  }
  add(parser->Finish());
  FORETOKEN_CHECK(parser->calls() == begun);
  FORETOKEN_CHECK(begun <= ToolCallParser::kMaxCalls);
  return joined;
}

}  // namespace

// The first byte is the length of the cuts.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  for (const ToolCallForm form :
       {ToolCallForm::kLlama3, ToolCallForm::kHermes, ToolCallForm::kMistral}) {
    FORETOKEN_CHECK(Joined(form, text, 1 + data[0] % 16) ==
                    Joined(form, text, text.size() + 1));
  }
  return 0;
}
