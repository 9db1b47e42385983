#include "common/text/chat/tool_call_wrapper.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/text/chat/chat_template.h"
#include "common/text/chat/messages.h"
#include "common/text/chat/tool_call_form.h"
#include "common/text/chat/tool_call_parser.h"
#include "common/text/jinja/template.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string TemplateOf(const std::string& model) {
  const auto source =
      ReadFile(testing::SourcePath(absl::StrCat(
                   "tests/golden/chat_templates/templates/", model, ".jinja")),
               jinja::Template::kMaxSourceBytes);
  EXPECT_THAT(source, testing::IsOk()) << model;
  return source.value_or("");
}

// A conversation in which the model has called f.
std::string Rendered(const std::string& source) {
  auto chat = ChatTemplate::Parse(source, {"<s>", "</s>"});
  EXPECT_THAT(chat, testing::IsOk());
  ChatPrompt prompt;
  auto messages = NormalizeMessages(
      R"([{"role": "user", "content": "a"},
          {"role": "assistant", "content": "", "tool_calls": [
            {"id": "abcdefghi", "type": "function", "function":
              {"name": "f", "arguments": "{\"x\": 1}"}}]},
          {"role": "tool", "tool_call_id": "abcdefghi", "content": "2"},
          {"role": "assistant", "content": "b"},
          {"role": "user", "content": "c"}])",
      {});
  EXPECT_THAT(messages, testing::IsOk());
  prompt.messages = *std::move(messages);
  auto tools = ParseTools(
      R"([{"type": "function", "function": {"name": "f", "description": "d",
           "parameters": {"type": "object", "properties": {}}}}])");
  EXPECT_THAT(tools, testing::IsOk());
  prompt.tools = *std::move(tools);
  const auto spans = chat->Render(prompt);
  EXPECT_THAT(spans, testing::IsOk());
  std::string text;
  if (!spans.ok()) return text;
  for (const PromptSpan& span : *spans) text += span.text;
  return text;
}

TEST(ToolCallWrapperTest, CallsStandAsTheTemplatesOfModelsWriteThem) {
  for (const std::string model :
       {"qwen2.5", "qwen3", "granite-4.0", "llama-3.1", "llama-3.2",
        "mistral-v3", "mistral-nemo"}) {
    const std::string source = TemplateOf(model);
    const ToolCallForm form = ToolCallFormOf(source);
    ASSERT_NE(form, ToolCallForm::kNone) << model;
    const ToolCallWrapper wrapper = ToolCallWrapperOf(form, source);
    // Mistral's templates have the id of the call before the brace.
    const bool has_id = form == ToolCallForm::kMistral;
    EXPECT_THAT(
        Rendered(source),
        HasSubstr(absl::StrCat(wrapper.begin, wrapper.before_name, "f",
                               wrapper.before_arguments, "{\"x\": 1}",
                               has_id ? ", \"id\"" : wrapper.after_arguments)))
        << model;
  }
}

TEST(ToolCallWrapperTest, TheReaderOfEveryFormFindsTheCalls) {
  const ToolNames offered = {"f"};
  for (const auto& [form, source] :
       std::vector<std::pair<ToolCallForm, std::string>>{
           {ToolCallForm::kHermes, ""},
           {ToolCallForm::kLlama3, ""},
           {ToolCallForm::kMistral, ""},
           {ToolCallForm::kMistral, "[TOOL_CALLS] ["},
           {ToolCallForm::kMistral, "[TOOL_CALLS] f[ARGS]"}}) {
    const ToolCallWrapper wrapper = ToolCallWrapperOf(form, source);
    const std::string call =
        absl::StrCat(wrapper.before_name, "f", wrapper.before_arguments,
                     "{\"x\": \"}\"}", wrapper.after_arguments);
    const std::string text =
        absl::StrCat(wrapper.begin, call, wrapper.separator, call, wrapper.end);
    const auto parser = ToolCallParser::Create(
        form, 1, offered, ToolCallParser::Fences::kIgnored);
    const AnswerDelta delta = parser->Add(text);
    EXPECT_THAT(delta.tool_calls, SizeIs(2)) << text;
    EXPECT_EQ(delta.content, "") << text;
    EXPECT_TRUE(parser->Finish().empty()) << text;
    EXPECT_THAT(text,
                HasSubstr(std::string(wrapper.first.empty() ? wrapper.opener
                                                            : wrapper.first)));
  }
}

}  // namespace
}  // namespace foretoken
