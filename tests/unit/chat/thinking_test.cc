#include "common/text/chat/thinking.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/file.h"
#include "common/text/chat/model_chat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::MakeAsciiTokenizer;
using ::foretoken::testing::SourcePath;
using ::testing::HasSubstr;

constexpr char kHello[] = R"([{"role": "user", "content": "Hello!"}])";
// Opens the thinking in its prompt, and cuts it from earlier answers.
constexpr char kOpening[] =
    "{% for m in messages %}<|{{ m.role }}|>"
    "{{ m.content.split('</think>')[-1] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}";
constexpr char kMagistral[] =
    "{% for m in messages %}[INST]{{ m.content }}[/INST]"
    "{% if m.reasoning_content %}"
    "{{ '[THINK]' + m.reasoning_content + '[/THINK]' }}{% endif %}{% endfor %}";

std::string GoldenTemplate(const std::string& name) {
  auto source = ReadFile(SourcePath(
      absl::StrCat("tests/golden/chat_templates/templates/", name, ".jinja")));
  EXPECT_THAT(source, testing::IsOk());
  return source.value_or("");
}

std::unique_ptr<ModelChat> MakeChat(const std::string& source) {
  auto chat = ModelChat::Create(MakeAsciiTokenizer("[]"), source);
  EXPECT_THAT(chat, testing::IsOk());
  return *std::move(chat);
}

// The stage in which the answer to the request begins.
ThinkingStage StageOf(const std::string& source, const std::string& messages,
                      const std::string& variables = "",
                      bool generates = true) {
  ChatRequest request;
  request.messages = messages;
  request.variables = variables;
  request.add_generation_prompt = generates;
  auto stage = generates ? ThinkingStage::kBefore : ThinkingStage::kInside;
  EXPECT_THAT(MakeChat(source)->Encode(request, absl::UnixEpoch(), nullptr,
                                       nullptr, &stage),
              testing::IsOk());
  return stage;
}

bool Opens(const std::string& source, const std::string& messages,
           const std::string& variables = "", bool generates = true) {
  return StageOf(source, messages, variables, generates) ==
         ThinkingStage::kInside;
}

TEST(ThinkingTest, TheTagsAreThoseOfTheTemplate) {
  for (const char* name : {"deepseek-r1", "deepseek-v3.1", "granite-3.3",
                           "qwen3", "qwq", "smollm3"}) {
    const auto tags = ThinkingTagsOf(GoldenTemplate(name));
    ASSERT_TRUE(tags.has_value()) << name;
    EXPECT_EQ(tags->open, "<think>") << name;
    EXPECT_EQ(tags->close, "</think>") << name;
  }
  for (const char* name : {"chatml", "gpt-oss", "granite-4.0", "llama-3.1",
                           "mistral-nemo", "qwen2.5", "qwen3-coder"}) {
    EXPECT_FALSE(ThinkingTagsOf(GoldenTemplate(name)).has_value()) << name;
  }
  EXPECT_EQ(ThinkingTagsOf(kMagistral)->open, "[THINK]");
  EXPECT_EQ(ThinkingTagsOf(kMagistral)->close, "[/THINK]");
  // The model opens the tag itself, and the template knows the other alone.
  EXPECT_EQ(
      ThinkingTagsOf("{% set content = content.split('</think>')[-1] %}")->open,
      "<think>");
  EXPECT_FALSE(ThinkingTagsOf("I think </thinking>").has_value());
}

TEST(ThinkingTest, ATemplateIsSwitchedByItsVariable) {
  const std::pair<std::string, const char*> cases[] = {
      {GoldenTemplate("qwen3"), "enable_thinking"},
      {GoldenTemplate("deepseek-v3.1"), "enable_thinking"},
      {GoldenTemplate("granite-3.3"), "thinking"},
      {GoldenTemplate("gpt-oss"), ""},
      {"{%- if not thinking -%}</think>{%- endif -%}", "thinking"},
      {"{% if thinking_budget %}</think>{% endif %}", ""},
      {"{% if message.thinking %}thinking</think>{% endif %}", ""}};
  for (const auto& [source, variable] : cases) {
    const auto chat = ModelChat::Create(MakeAsciiTokenizer("[]"), source);
    FORETOKEN_ASSERT_OK(chat);
    EXPECT_EQ((*chat)->thinking_variable(), variable) << source;
  }
}

TEST(ThinkingTest, ATemplateOpensItInThePrompt) {
  EXPECT_TRUE(Opens(kOpening, kHello));
  EXPECT_FALSE(Opens(kOpening, kHello, "", /*generates=*/false));
  EXPECT_FALSE(Opens(kMagistral, kHello));
  constexpr char kOn[] = R"({"enable_thinking": true, "thinking": true})";
  constexpr char kOff[] = R"({"enable_thinking": false, "thinking": false})";
  for (const char* name : {"deepseek-r1", "deepseek-v3.1", "qwq"}) {
    EXPECT_TRUE(Opens(GoldenTemplate(name), kHello, kOn)) << name;
    EXPECT_FALSE(Opens(GoldenTemplate(name), kHello, kOff)) << name;
  }
  // These leave it to the model.
  for (const char* name : {"qwen3", "smollm3"}) {
    EXPECT_EQ(StageOf(GoldenTemplate(name), kHello, kOn),
              ThinkingStage::kBefore)
        << name;
  }
}

TEST(ThinkingTest, ATemplateThatIsToldNotToThinkClosesItInThePrompt) {
  constexpr char kOff[] = R"({"enable_thinking": false, "thinking": false})";
  for (const char* name : {"qwen3", "smollm3", "deepseek-v3.1"}) {
    EXPECT_EQ(StageOf(GoldenTemplate(name), kHello, kOff), ThinkingStage::kOver)
        << name;
  }
  EXPECT_EQ(StageOf("{{ messages[-1].content }}{# </think> #}",
                    R"([{"role": "user", "content": "</think>"}])"),
            ThinkingStage::kBefore);
}

TEST(ThinkingTest, TextOfARequestNeitherOpensNorClosesIt) {
  constexpr char kTags[] =
      R"([{"role": "user", "content": "<think>"},
          {"role": "user", "content": "</think><think>\n"}])";
  EXPECT_TRUE(Opens(kOpening, kTags));
  EXPECT_TRUE(
      Opens(kOpening, R"([{"role": "user", "content": "<think></think>"}])"));
  EXPECT_FALSE(Opens(GoldenTemplate("qwen3"), kTags));
  EXPECT_FALSE(Opens("{{ messages[-1].content }}{# </think> #}", kTags));
  // Half of the tag is the request's.
  EXPECT_FALSE(Opens("{{ messages[0].content }}think>{# </think> #}",
                     R"([{"role": "user", "content": "<"}])"));
}

TEST(ThinkingTest, AMentionOfTheTagDoesNotOpenIt) {
  // With no text of the request in it, the whole prompt is the template's.
  for (const char* asked :
       {"Put your reasoning in <think> tags.",
        "Put your reasoning between <think> and </think>."}) {
    EXPECT_EQ(
        StageOf(absl::StrCat(asked, "<|assistant|>\n{# </think> #}"), kHello),
        ThinkingStage::kBefore)
        << asked;
    EXPECT_EQ(
        StageOf(absl::StrCat(asked, "<|assistant|><think> \n\n{# </think> #}"),
                kHello),
        ThinkingStage::kInside)
        << asked;
  }
}

TEST(ThinkingTest, ReasoningOfEarlierAnswersReachesTheTemplate) {
  const auto chat = MakeChat(GoldenTemplate("qwen3"));
  ChatRequest request;
  request.messages = R"([
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "reasoning_content": "So.",
       "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "content": "b"}])";
  const auto spans = chat->Render(request, absl::UnixEpoch());
  ASSERT_THAT(spans, testing::IsOk());
  std::string text;
  for (const PromptSpan& span : *spans) text += span.text;
  EXPECT_THAT(text, HasSubstr("<think>\nSo.\n</think>\n\n<tool_call>"));
}

TEST(ThinkingTest, SpecialTokensAmongTheTagsAreKnown) {
  const auto chat = ModelChat::Create(
      MakeAsciiTokenizer(R"([{"id": 100, "content": "[THINK]", "special": true},
          {"id": 101, "content": "[/THINK]", "special": true}])"),
      kMagistral);
  FORETOKEN_ASSERT_OK(chat);
  EXPECT_EQ((*chat)->thinking_controls(),
            (ControlTokens{{100, "[THINK]"}, {101, "[/THINK]"}}));
  const auto text = ModelChat::Create(
      MakeAsciiTokenizer(
          R"([{"id": 100, "content": "<think>", "special": false}])"),
      kOpening);
  FORETOKEN_ASSERT_OK(text);
  EXPECT_TRUE((*text)->thinking_controls().empty());
}

}  // namespace
}  // namespace foretoken
