// The bodies of POST /v1/messages and /v1/messages/count_tokens.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/message_blocks.h"
#include "services/gateway/core/requests.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kOne[] =
    R"("max_tokens": 9, "messages": [{"role": "user", "content": "a"}])";

ApiRequest Read(const std::string& fields) {
  auto request = ReadMessagesRequest(absl::StrCat("{", fields, "}"));
  EXPECT_THAT(request, IsOk()) << fields;
  return request.ok() ? *std::move(request) : ApiRequest();
}
ApiRequest ReadWith(const std::string& fields) {
  return Read(absl::StrCat(kOne, ", ", fields));
}

Json MessagesOf(const std::string& messages, const std::string& more = "") {
  const ApiRequest request =
      Read(absl::StrCat(R"("max_tokens": 1, "messages": )", messages, more));
  return request.conversation.has_value()
             ? Json::parse(request.conversation->messages)
             : Json();
}

// The field that is at fault and what the error says.
ApiError ErrorOf(const std::string& fields) {
  const auto request = ReadMessagesRequest(absl::StrCat("{", fields, "}"));
  EXPECT_FALSE(request.ok()) << fields;
  return request.ok() ? ApiError() : ToApiError(request.status());
}
std::string Fault(const std::string& fields) {
  return ErrorOf(absl::StrCat(kOne, ", ", fields)).param;
}
std::string FaultIn(const std::string& messages) {
  return ErrorOf(absl::StrCat(R"("max_tokens": 1, "messages": )", messages))
      .param;
}

TEST(MessagesRequestTest, MessagesAreThoseOfAChat) {
  EXPECT_EQ(MessagesOf(R"([
      {"role": "user", "content": "a\"b"},
      {"role": "assistant", "content": [{"type": "text", "text": "c",
       "citations": null}]},
      {"role": "user", "content": [
        {"type": "text", "text": "d", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "e"}]}])",
                       R"(, "system": "be brief")"),
            Json::parse(R"([
      {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
      {"role": "user", "content": [{"type": "text", "text": "a\"b"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
      {"role": "user", "content": [{"type": "text", "text": "d"},
                                   {"type": "text", "text": "e"}]}])"));
  // Those of one role are one; the system may come in blocks, and later.
  EXPECT_EQ(MessagesOf(R"([
      {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
      {"role": "system", "content": "c"}, {"role": "user", "content": []}])",
                       R"(, "system": [{"type": "text", "text": "s"},
                                       {"type": "text", "text": ""}])"),
            Json::parse(R"([
      {"role": "system", "content": [{"type": "text", "text": "s"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]},
      {"role": "system", "content": [{"type": "text", "text": "c"}]},
      {"role": "user", "content": []}])"));
}

TEST(MessagesRequestTest, CallsAndResultsAreThoseOfAChat) {
  const ApiRequest request = Read(R"("max_tokens": 1, "messages": [
      {"role": "user", "content": "u"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t", "signature": "x"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "1", "name": "f", "caller":
          {"type": "direct"}, "input": {"z": 1, "a": {"y": [2]}}},
        {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": "r"},
        {"type": "tool_result", "tool_use_id": "2", "is_error": true,
         "content": [{"type": "text", "text": "s"},
                     {"type": "text", "text": "t"}]},
        {"type": "tool_result", "tool_use_id": "3"},
        {"type": "text", "text": "go on"}]}])");
  EXPECT_EQ(Json::parse(request.conversation->messages), Json::parse(R"([
      {"role": "user", "content": [{"type": "text", "text": "u"}]},
      {"role": "assistant", "reasoning_content": "t",
       "content": [{"type": "text", "text": "a"}], "tool_calls": [
        {"id": "1", "type": "function", "function":
          {"name": "f", "arguments": "{\"z\": 1, \"a\": {\"y\": [2]}}"}},
        {"id": "2", "type": "function", "function":
          {"name": "g", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1",
       "content": [{"type": "text", "text": "r"}]},
      {"role": "tool", "tool_call_id": "2", "is_error": true,
       "content": [{"type": "text", "text": "s"},
                   {"type": "text", "text": "t"}]},
      {"role": "tool", "tool_call_id": "3", "content": []},
      {"role": "user", "content": [{"type": "text", "text": "go on"}]}])"));
}

// Chats have the reasoning of a message before its content, and the content
// before its calls.
TEST(MessagesRequestTest, BlocksOfAnotherOrderAreMessagesOfTheirOwn) {
  EXPECT_EQ(MessagesOf(R"([
      {"role": "assistant", "content": [
        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "t", "signature": ""},
        {"type": "thinking", "thinking": "u", "signature": ""},
        {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
      {"role": "user", "content": "v"}])"),
            Json::parse(R"([
      {"role": "assistant", "content": [], "tool_calls": [
        {"id": "1", "type": "function",
         "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
      {"role": "assistant", "content": [], "reasoning_content": "t\nu",
       "tool_calls": [{"id": "2", "type": "function",
                       "function": {"name": "g", "arguments": "{}"}}]},
      {"role": "user", "content": [{"type": "text", "text": "v"}]}])"));
}

TEST(MessagesRequestTest, BlocksThatAreNotServedAreNamed) {
  const auto user = [](const std::string& block) {
    return FaultIn(
        absl::StrCat(R"([{"role": "user", "content": [)", block, "]}]"));
  };
  EXPECT_EQ(user(R"({"type": "image", "source": {}})"),
            "messages[0].content[0].type");
  EXPECT_EQ(user(R"({"type": "document", "source": {}})"),
            "messages[0].content[0].type");
  EXPECT_EQ(user(R"({"type": "tool_use", "id": "1", "name": "f",
                     "input": {}})"),
            "messages[0].content[0].type");
  EXPECT_EQ(user(R"({"type": "text"})"), "messages[0].content[0].text");
  EXPECT_EQ(user(R"({"text": "a"})"), "messages[0].content[0].type");
  EXPECT_EQ(user(R"("a")"), "messages[0].content[0]");
  EXPECT_EQ(user(R"({"type": "text", "text": "a", "citations": [{}]})"),
            "messages[0].content[0].citations");
  EXPECT_EQ(user(R"({"type": "text", "text": "a", "size": 3})"),
            "messages[0].content[0].size");
  EXPECT_EQ(user(R"({"type": "text", "text": "a",
                     "cache_control": {"type": "forever"}})"),
            "messages[0].content[0].cache_control.type");
  EXPECT_EQ(user(R"({"type": "tool_result", "content": "r"})"),
            "messages[0].content[0].tool_use_id");
  EXPECT_EQ(user(R"({"type": "tool_result", "tool_use_id": "1",
                     "content": [{"type": "image"}]})"),
            "messages[0].content[0].content[0].type");
  EXPECT_THAT(
      ErrorOf(R"("max_tokens": 1, "messages": [{"role": "user", "content":
                 [{"type": "image"}]}])")
          .message,
      HasSubstr("'image' is not supported, want text or tool_result"));
  const auto assistant = [](const std::string& block) {
    return FaultIn(absl::StrCat(R"([{"role": "assistant", "content": [)", block,
                                R"(]}, {"role": "user", "content": "a"}])"));
  };
  EXPECT_EQ(assistant(R"({"type": "redacted_thinking", "data": "x"})"),
            "messages[0].content[0].type");
  EXPECT_EQ(assistant(R"({"type": "server_tool_use", "id": "1"})"),
            "messages[0].content[0].type");
  EXPECT_EQ(assistant(R"({"type": "tool_use", "id": "1", "name": "f",
                          "input": "{}"})"),
            "messages[0].content[0].input");
  EXPECT_EQ(assistant(R"({"type": "thinking", "signature": ""})"),
            "messages[0].content[0].thinking");
}

TEST(MessagesRequestTest, MessagesThatAreWrongAreNamed) {
  EXPECT_EQ(FaultIn("[]"), "messages");
  EXPECT_EQ(FaultIn("\"a\""), "messages");
  EXPECT_EQ(FaultIn("[3]"), "messages[0]");
  EXPECT_EQ(FaultIn(R"([{"role": "bot", "content": "a"}])"),
            "messages[0].role");
  EXPECT_EQ(FaultIn(R"([{"role": "user"}])"), "messages[0].content");
  EXPECT_EQ(FaultIn(R"([{"role": "user", "content": "a", "name": "b"}])"),
            "messages[0].name");
  // An answer that has begun.
  EXPECT_EQ(FaultIn(R"([{"role": "user", "content": "a"},
                        {"role": "assistant", "content": "b"}])"),
            "messages[1]");
  EXPECT_EQ(ErrorOf("\"max_tokens\": 1").param, "messages");
  EXPECT_EQ(ErrorOf(R"("messages": [{"role": "user", "content": "a"}])").param,
            "max_tokens");
  EXPECT_EQ(ErrorOf(R"("max_tokens": 0, "messages":
                       [{"role": "user", "content": "a"}])")
                .param,
            "max_tokens");
  EXPECT_EQ(Fault(R"("system": [{"type": "image"}])"), "system[0].type");
  EXPECT_FALSE(ReadMessagesRequest("[]").ok());
  EXPECT_FALSE(ReadMessagesRequest("{").ok());
}

TEST(MessagesRequestTest, LimitsAndExtensionsArrive) {
  const ApiRequest request = ReadWith(R"("model": "m", "temperature": 0.5,
      "top_p": 0.9, "top_k": 4, "stop_sequences": ["x", "\n"], "stream": true,
      "seed": 3, "cache_scope": "mine", "speculation": "off",
      "chat_template_kwargs": {"a": 1}, "metadata": {"user_id": "u"},
      "service_tier": "auto")");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_FLOAT_EQ(request.generation.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.generation.sampling.top_p, 0.9f);
  EXPECT_EQ(request.generation.sampling.top_k, 4);
  EXPECT_THAT(request.generation.stop_strings, ElementsAre("x", "\n"));
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.generation.cache_scope, "mine");
  EXPECT_EQ(request.conversation->variables, R"({"a": 1})");
  EXPECT_EQ(request.error_form, ErrorForm::kAnthropic);
  EXPECT_FLOAT_EQ(ReadWith(R"("top_k": null)").generation.sampling.temperature,
                  1.0f);
}

TEST(MessagesRequestTest, ToolsHaveTheFormOfAChat) {
  const ApiRequest request = ReadWith(R"("tools": [
      {"name": "f", "description": "d", "type": "custom", "strict": true,
       "eager_input_streaming": true, "cache_control": {"type": "ephemeral",
       "ttl": "1h"}, "input_schema": {"z": 1, "a": 2}},
      {"name": "g", "input_schema": {"type": "object"}}])");
  EXPECT_TRUE(request.with_tools);
  EXPECT_EQ(request.conversation->tools,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"z": 1, "a": 2}}},{"type":"function",)"
            R"("function":{"name":"g","parameters":{"type": "object"}}}])");
  EXPECT_EQ(request.tool_rules.strict, ToolNames{"f"});
  EXPECT_EQ(request.tool_names, (ToolNames{"f", "g"}));
  EXPECT_EQ(Fault(R"("tools": [{"type": "web_search_20250305",
                                "name": "web_search"}])"),
            "tools[0].type");
  EXPECT_EQ(Fault(R"("tools": [{"name": "f"}])"), "tools[0].input_schema");
  EXPECT_EQ(Fault(R"("tools": [{"input_schema": {}}])"), "tools[0].name");
  EXPECT_EQ(Fault(R"("tools": [{"name": "f", "input_schema": {},
                                "defer_loading": true}])"),
            "tools[0].defer_loading");
  EXPECT_EQ(Fault(R"("tools": [{"name": "f", "parameters": {},
                                "input_schema": {}}])"),
            "tools[0].parameters");
  EXPECT_EQ(Fault(R"("tools": {})"), "tools");
}

TEST(MessagesRequestTest, ToolChoicesAreRules) {
  const std::string tools = R"("tools": [{"name": "f", "input_schema": {}}])";
  const auto choose = [&](const std::string& choice) {
    return ReadWith(absl::StrCat(tools, ", \"tool_choice\": ", choice));
  };
  const ApiRequest automatic = choose(R"({"type": "auto"})");
  EXPECT_TRUE(automatic.with_tools);
  EXPECT_FALSE(automatic.tool_rules.required);
  EXPECT_FALSE(automatic.one_call);
  EXPECT_TRUE(choose(R"({"type": "auto", "disable_parallel_tool_use": true})")
                  .one_call);
  const ApiRequest any = choose(R"({"type": "any"})");
  EXPECT_TRUE(any.tool_rules.required);
  EXPECT_EQ(any.tool_rules.function, "");
  const ApiRequest named = choose(R"({"type": "tool", "name": "f"})");
  EXPECT_TRUE(named.tool_rules.required);
  EXPECT_EQ(named.tool_rules.function, "f");
  EXPECT_FALSE(named.one_call);
  const ApiRequest none = choose(R"({"type": "none"})");
  EXPECT_FALSE(none.with_tools);
  EXPECT_EQ(none.conversation->tools, "");
  const auto fault = [&](const std::string& choice) {
    return Fault(absl::StrCat(tools, ", \"tool_choice\": ", choice));
  };
  EXPECT_EQ(fault(R"({"type": "tool", "name": "g"})"), "tool_choice.name");
  EXPECT_EQ(fault(R"({"type": "tool"})"), "tool_choice.name");
  EXPECT_EQ(fault(R"({"type": "required"})"), "tool_choice.type");
  EXPECT_EQ(fault(R"({"type": "any", "name": "f"})"), "tool_choice.name");
  EXPECT_EQ(fault("\"auto\""), "tool_choice");
  EXPECT_EQ(Fault(R"("tool_choice": {"type": "any"})"), "tool_choice");
}

TEST(MessagesRequestTest, ThinkingIsAWish) {
  for (const char* fields :
       {R"("thinking": null)", R"("thinking": {"type": "adaptive"})"}) {
    const ApiRequest none = ReadWith(fields);
    EXPECT_EQ(none.thinking_wish.enabled, std::nullopt) << fields;
    EXPECT_THAT(none.ignored_fields, IsEmpty()) << fields;
  }
  // A budget is a target, whatever max_tokens is.
  for (const char* budget : {"1", "8", "9", "1024"}) {
    const ApiRequest on = ReadWith(
        absl::StrCat(R"("thinking": {"type": "enabled", "budget_tokens": )",
                     budget, R"(, "display": "summarized"})"));
    EXPECT_EQ(on.thinking_wish.enabled, true) << budget;
    EXPECT_EQ(on.thinking_wish.enabled_field, "thinking");
    EXPECT_THAT(on.ignored_fields, ElementsAre("thinking.budget_tokens"));
  }
  const ApiRequest off = ReadWith(R"("thinking": {"type": "disabled"})");
  EXPECT_EQ(off.thinking_wish.enabled, false);
  EXPECT_THAT(off.ignored_fields, IsEmpty());
  EXPECT_EQ(Fault(R"("thinking": {"type": "enabled"})"),
            "thinking.budget_tokens");
  EXPECT_EQ(Fault(R"("thinking": {"type": "enabled", "budget_tokens": 0})"),
            "thinking.budget_tokens");
  EXPECT_EQ(Fault(R"("thinking": {"type": "on"})"), "thinking.type");
  EXPECT_EQ(Fault(R"("thinking": {"type": "adaptive", "display": "omitted"})"),
            "thinking.display");
  EXPECT_EQ(Fault(R"("thinking": {"type": "disabled", "budget_tokens": 9})"),
            "thinking.budget_tokens");
}

TEST(MessagesRequestTest, AnEffortIsAWish) {
  const ApiRequest low = ReadWith(R"("output_config": {"effort": "low"})");
  EXPECT_EQ(low.thinking_wish.effort, "low");
  EXPECT_EQ(low.thinking_wish.effort_field, "output_config.effort");
  EXPECT_EQ(low.thinking_wish.default_effort, "high");
  EXPECT_EQ(Fault(R"("output_config": {"effort": "most"})"),
            "output_config.effort");
  EXPECT_EQ(Fault(R"("output_config": {"effort": 3})"), "output_config.effort");
}

TEST(MessagesRequestTest, AFormatIsAConstraint) {
  const ApiRequest request = ReadWith(R"("output_config": {"effort": "high",
      "format": {"type": "json_schema", "schema": {"z": 1, "a": [2]}}})");
  EXPECT_EQ(
      request.generation.constraint,
      (Constraint{Constraint::Kind::kJsonSchema, R"({"z": 1, "a": [2]})", {}}));
  EXPECT_EQ(request.constraint_field, "output_config.format.schema");
  EXPECT_EQ(Fault(R"("output_config": 3)"), "output_config");
  EXPECT_EQ(Fault(R"("output_config": {"format": {"type": "json_schema",
                     "schema": {}}}, "tools": [{"name": "f",
                     "input_schema": {}}])"),
            "output_config.format.schema");
}

TEST(MessagesRequestTest, FieldsThatAreNotServedAreNamed) {
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, const char*>>{
           {"container", "\"c\""},
           {"diagnostics", "{}"},
           {"inference_geo", "\"us\""},
           {"service_tier", "\"priority\""},
           {"speed", "\"fast\""},
           {"mcp_servers", "[{}]"},
           {"context_management", "{}"},
           {"stop", "[\"x\"]"},
           {"stream_options", "{}"},
           {"n", "2"},
           {"logprobs", "true"},
           {"response_format", "{}"},
           {"max_completion_tokens", "3"},
           {"stop_sequences", "\"x\""},
           {"top_k", "-2"},
           {"temperature", "\"hot\""}}) {
    EXPECT_EQ(Fault(absl::StrCat("\"", field, "\": ", value)), field);
  }
  EXPECT_EQ(Fault(R"("metadata": {"user": "u"})"), "metadata.user");
  EXPECT_EQ(Fault(R"("stop_sequences": [""])"), "stop_sequences");
  EXPECT_THAT(ErrorOf(absl::StrCat(kOne, R"(, "speed": "fast")")).message,
              HasSubstr("want standard"));
  ReadWith(R"("container": null, "speed": "standard", "mcp_servers": [],
              "cache_control": {"type": "ephemeral"},
              "service_tier": "standard_only")");
}

TEST(MessagesRequestTest, CountingTakesTheConversationAlone) {
  const std::string fields =
      R"("messages": [{"role": "user", "content": "a"}], "system": "s",
         "tools": [{"name": "f", "input_schema": {}}], "model": "m",
         "tool_choice": {"type": "any"}, "thinking": {"type": "enabled",
         "budget_tokens": 1024}, "output_config": {"effort": "low"})";
  const auto counted = ReadCountTokensRequest(absl::StrCat("{", fields, "}"));
  ASSERT_THAT(counted, IsOk());
  const ApiRequest whole = Read(absl::StrCat(fields, ", \"max_tokens\": 1025"));
  EXPECT_EQ(counted->conversation->messages, whole.conversation->messages);
  EXPECT_EQ(counted->conversation->tools, whole.conversation->tools);
  EXPECT_EQ(counted->thinking_wish.enabled, whole.thinking_wish.enabled);
  EXPECT_EQ(counted->thinking_wish.effort, whole.thinking_wish.effort);
  EXPECT_EQ(counted->model, "m");
  for (const char* field : {"max_tokens", "temperature", "stream"}) {
    const auto refused = ReadCountTokensRequest(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], ")",
                     field, "\": 1}"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(ToApiError(refused.status()).param, field);
  }
}

}  // namespace
}  // namespace foretoken::gateway
