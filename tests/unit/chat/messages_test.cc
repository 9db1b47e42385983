#include "common/text/chat/messages.h"

#include <string>

#include "common/text/jinja/budget.h"
#include "common/text/jinja/python_text.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Dump(const absl::StatusOr<jinja::Value>& value) {
  if (!value.ok()) return value.status().ToString();
  jinja::Budget budget{jinja::Limits()};
  jinja::JsonStyle style;
  style.item_separator = ",";
  style.key_separator = ":";
  return jinja::ToJson(budget, *value, style).value().bytes();
}

std::string Normalized(absl::string_view json, const MessageRules& rules = {}) {
  return Dump(NormalizeMessages(json, rules));
}

TEST(MessagesTest, KeepsWhatTemplatesReadAsItIs) {
  EXPECT_EQ(Normalized(R"([{"z":1,"role":"user","content":"hi","name":"n"}])"),
            R"([{"z":1,"role":"user","content":"hi","name":"n"}])");
}

TEST(MessagesTest, JoinsPartsAndFillsInMissingContent) {
  EXPECT_EQ(Normalized(R"([{"role":"user","content":[
                {"type":"text","text":"a"},{"type":"text","text":"b"}]},
               {"role":"user","content":[]},
               {"role":"assistant","content":null,"refusal":null},
               {"role":"assistant"}])"),
            R"([{"role":"user","content":"a\nb"},{"role":"user","content":""},)"
            R"({"role":"assistant","content":""},)"
            R"({"role":"assistant","content":""}])");
}

TEST(MessagesTest, ParsesArgumentsThatSpellAnObject) {
  const auto call = [](const std::string& function) {
    return R"([{"role":"assistant","content":"","tool_calls":[{"id":"i",)"
           R"("function":)" +
           function + "}]}]";
  };
  EXPECT_EQ(
      Normalized(call(R"({"name":"f","arguments":"{\"b\":1,\"a\":[]}"})")),
      call(R"({"name":"f","arguments":{"b":1,"a":[]}})"));
  for (const char* kept : {R"("[1]")", R"("{\"a\":")", R"({"x":1})"}) {
    const std::string text =
        call(std::string(R"({"name":"f","arguments":)") + kept + "}");
    EXPECT_EQ(Normalized(text), text);
  }
  for (const char* none : {R"({"name":"f"})", R"({"name":"f","arguments":""})",
                           R"({"name":"f","arguments":null})"}) {
    EXPECT_EQ(Normalized(call(none)), call(R"({"name":"f","arguments":{}})"));
  }
}

TEST(MessagesTest, EmptyToolCallsAreLeftOut) {
  EXPECT_EQ(Normalized(R"([{"role":"assistant","content":"x",
                            "tool_calls":null},
                           {"role":"assistant","content":"x",
                            "tool_calls":[]}])"),
            R"([{"role":"assistant","content":"x"},)"
            R"({"role":"assistant","content":"x"}])");
}

TEST(MessagesTest, ReasoningHasTwoNames) {
  const auto with = [](const std::string& fields) {
    return R"([{"role":"assistant","content":"x",)" + fields + "}]";
  };
  EXPECT_EQ(Normalized(with(R"("reasoning":"a")")),
            with(R"("reasoning":"a","reasoning_content":"a")"));
  EXPECT_EQ(Normalized(with(R"("reasoning":"a","reasoning_content":null)")),
            with(R"("reasoning":"a","reasoning_content":"a")"));
  for (const char* kept :
       {R"("reasoning":"a","reasoning_content":"b")", R"("reasoning":{"a":1})",
        R"("reasoning_content":"b")"}) {
    EXPECT_EQ(Normalized(with(kept)), with(kept));
  }
  constexpr char kUser[] = R"([{"role":"user","content":"x","reasoning":"a"}])";
  EXPECT_EQ(Normalized(kUser), kUser);
}

TEST(MessagesTest, DeveloperIsTheSystemWhereTheTemplateDoesNotKnowIt) {
  constexpr char kMessages[] = R"([{"role":"developer","content":"x"}])";
  EXPECT_EQ(Normalized(kMessages), R"([{"role":"system","content":"x"}])");
  EXPECT_EQ(Normalized(kMessages, {.developer_as_system = false}), kMessages);
}

TEST(MessagesTest, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "messages: want at least one"},
      {"null", "messages: want at least one"},
      {"[]", "messages: want at least one"},
      {"{}", "messages: want a list"},
      {"[", "messages: bad JSON"},
      {"[1]", "messages[0]: want an object"},
      {R"([{"content":"x"}])", "messages[0].role: want a string"},
      {R"([{"role":1}])", "messages[0].role: want a string"},
      {R"([{"role":"user"},{"role":"user","content":7}])",
       "messages[1].content: want a string or a list of parts"},
      {R"([{"role":"user","content":["a"]}])",
       "messages[0].content[0]: want an object"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])",
       "messages[0].content[0].type: 'image_url' is not supported"},
      {R"([{"role":"user","content":[{"type":"text"}]}])",
       "messages[0].content[0].text: want a string"},
      {R"([{"role":"user","content":""},{"role":"assistant","refusal":"no"}])",
       "messages[1].refusal: not supported"},
      {R"([{"role":"assistant","function_call":{}}])",
       "messages[0].function_call: not supported"},
      {R"([{"role":"assistant","tool_calls":{}}])",
       "messages[0].tool_calls: want a list"},
      {R"([{"role":"assistant","tool_calls":[{}]}])",
       "messages[0].tool_calls[0].function: want an object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name: want a string"},
      {R"([{"role":"assistant","tool_calls":[
            {"function":{"name":"f","arguments":[]}}]}])",
       "messages[0].tool_calls[0].function.arguments: want a string"}};
  for (const auto& [json, error] : cases) {
    EXPECT_THAT(NormalizeMessages(json, {}),
                StatusIs(kInvalid, HasSubstr(error)))
        << json;
  }
}

TEST(MessagesTest, ToolsKeepTheOrderOfTheirKeys) {
  constexpr char kTools[] =
      R"([{"type":"function","function":{"name":"f","b":1,"a":2}}])";
  EXPECT_EQ(Dump(ParseTools(kTools)), kTools);
  for (const char* none : {"", "null", "[]"}) {
    EXPECT_EQ(Dump(ParseTools(none)), "null");
  }
}

TEST(MessagesTest, ErrorsOfToolsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "tools: want a list"},
      {"[1]", "tools[0]: want an object"},
      {"[{}]", "tools[0].function: want an object"},
      {R"([{"function":{"name":1}}])", "tools[0].function.name"}};
  for (const auto& [json, error] : cases) {
    EXPECT_THAT(ParseTools(json), StatusIs(kInvalid, HasSubstr(error))) << json;
  }
}

}  // namespace
}  // namespace foretoken
