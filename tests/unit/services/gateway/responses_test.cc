// POST /v1/responses, from its body to its events.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/requests.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ApiRequest Read(const std::string& fields) {
  auto request = ReadResponsesRequest(absl::StrCat("{", fields, "}"));
  EXPECT_THAT(request, IsOk()) << fields;
  return request.ok() ? *std::move(request) : ApiRequest();
}

Json MessagesOf(const std::string& input) {
  const ApiRequest request = Read(absl::StrCat("\"input\":", input));
  return request.conversation.has_value()
             ? Json::parse(request.conversation->messages)
             : Json();
}

TEST(ResponsesRequestTest, InputsAreMessages) {
  EXPECT_EQ(MessagesOf(R"("a\"b")"),
            Json::parse(R"([{"role": "user", "content": "a\"b"}])"));
  EXPECT_EQ(Json::parse(Read(R"("input": "a", "instructions": "be brief")")
                            .conversation->messages),
            Json::parse(R"([{"role": "system", "content": "be brief"},
                            {"role": "user", "content": "a"}])"));
  EXPECT_EQ(MessagesOf(R"([
      {"role": "developer", "content": "d"},
      {"type": "message", "role": "user",
       "content": [{"type": "input_text", "text": "a"},
                   {"type": "input_text", "text": "b"}]},
      {"type": "message", "id": "msg_1", "status": "completed",
       "role": "assistant", "content": [{"type": "output_text", "text": "c",
       "annotations": [], "logprobs": []}]}])"),
            Json::parse(R"([
      {"role": "developer", "content": "d"},
      {"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "c"}]}])"));
}

TEST(ResponsesRequestTest, CallsJoinTheAssistantsMessage) {
  EXPECT_EQ(MessagesOf(R"([
      {"role": "user", "content": "u"},
      {"role": "assistant", "content": "a"},
      {"type": "function_call", "call_id": "1", "name": "f",
       "arguments": "{\"x\": 1}", "id": "fc_1", "status": "completed"},
      {"type": "function_call", "call_id": "2", "name": "g", "arguments": ""},
      {"type": "function_call_output", "call_id": "1", "output": "r"},
      {"type": "function_call_output", "call_id": "2",
       "output": [{"type": "input_text", "text": "s"}]},
      {"type": "function_call", "call_id": "3", "name": "h",
       "arguments": "{}"}])"),
            Json::parse(R"([
      {"role": "user", "content": "u"},
      {"role": "assistant", "content": "a", "tool_calls": [
        {"id": "1", "type": "function",
         "function": {"name": "f", "arguments": "{\"x\": 1}"}},
        {"id": "2", "type": "function",
         "function": {"name": "g", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "1", "content": "r"},
      {"role": "tool", "tool_call_id": "2",
       "content": [{"type": "text", "text": "s"}]},
      {"role": "assistant", "tool_calls": [
        {"id": "3", "type": "function",
         "function": {"name": "h", "arguments": "{}"}}]}])"));
}

TEST(ResponsesRequestTest, ReasoningIsThatOfTheAnswerBehindIt) {
  EXPECT_EQ(MessagesOf(R"([
      {"role": "user", "content": "u"},
      {"type": "reasoning", "id": "rs_1", "status": "completed",
       "summary": [{"type": "summary_text", "text": "s"}],
       "encrypted_content": null,
       "content": [{"type": "reasoning_text", "text": "a\"b"},
                   {"type": "reasoning_text", "text": "c"}]},
      {"role": "assistant", "content": "d"},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": ""},
      {"type": "reasoning", "summary": [],
       "content": [{"type": "reasoning_text", "text": "e"}]},
      {"type": "function_call", "call_id": "2", "name": "g", "arguments": ""},
      {"type": "function_call", "call_id": "3", "name": "h", "arguments": ""},
      {"type": "function_call_output", "call_id": "2", "output": "r"},
      {"type": "reasoning", "summary": []},
      {"role": "assistant", "content": "i"},
      {"type": "reasoning", "summary": [],
       "content": [{"type": "reasoning_text", "text": "dropped"}]},
      {"role": "user", "content": "v"},
      {"role": "assistant", "content": "j"}])"),
            Json::parse(R"([
      {"role": "user", "content": "u"},
      {"role": "assistant", "reasoning_content": "a\"b\nc", "content": "d",
       "tool_calls": [{"id": "1", "type": "function",
                       "function": {"name": "f", "arguments": ""}}]},
      {"role": "assistant", "reasoning_content": "e", "tool_calls": [
        {"id": "2", "type": "function",
         "function": {"name": "g", "arguments": ""}},
        {"id": "3", "type": "function",
         "function": {"name": "h", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "2", "content": "r"},
      {"role": "assistant", "content": "i"},
      {"role": "user", "content": "v"},
      {"role": "assistant", "content": "j"}])"));
}

TEST(ResponsesRequestTest, ToolsHaveTheFormOfAChat) {
  const ApiRequest request = Read(R"("input": "a", "tools": [
      {"type": "function", "name": "f", "description": "d", "strict": false,
       "parameters": {"z": 1, "a": 2}},
      {"name": "g", "type": "function", "parameters": null}])");
  EXPECT_TRUE(request.with_tools);
  // With keys in the order of the request.
  EXPECT_EQ(request.conversation->tools,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"z": 1, "a": 2}}},)"
            R"({"type":"function","function":{"name":"g"}}])");
  const auto marked = ReadResponsesRequest(
      "\xEF\xBB\xBF{\"input\": \"a\", \"tools\": [{\"type\": \"function\", "
      "\"n\\u0061me\": \"f\"}]}");
  ASSERT_THAT(marked, IsOk());
  EXPECT_EQ(marked->conversation->tools,
            R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_FALSE(Read(R"("input": "a", "tool_choice": "none", "tools": [
      {"type": "function", "name": "f"}])")
                   .with_tools);
}

TEST(ResponsesRequestTest, RulesOfToolsAreThoseOfTheChoiceAndOfStrictTools) {
  const std::string tools = R"("input": "a", "tools": [
      {"type": "function", "name": "f", "strict": true},
      {"type": "function", "name": "g"}])";
  const ApiRequest automatic = Read(tools);
  EXPECT_EQ(automatic.tool_rules.strict, ToolNames{"f"});
  EXPECT_FALSE(automatic.tool_rules.required);
  // What is for the server alone is not shown to the model.
  EXPECT_EQ(automatic.conversation->tools,
            R"([{"type":"function","function":{"name":"f"}},)"
            R"({"type":"function","function":{"name":"g"}}])");
  const ApiRequest named = Read(absl::StrCat(
      tools, R"(, "tool_choice": {"type": "function", "name": "g"})"));
  EXPECT_TRUE(named.tool_rules.required);
  EXPECT_EQ(named.tool_rules.function, "g");
  EXPECT_TRUE(named.one_call);
  EXPECT_TRUE(
      Read(absl::StrCat(tools, R"(, "tool_choice": "required")")).with_tools);
  EXPECT_TRUE(Read(absl::StrCat(tools, R"(, "tool_choice": "none")"))
                  .tool_rules.empty());
}

TEST(ResponsesRequestTest, LimitsAndExtensionsArrive) {
  const ApiRequest request = Read(R"("input": "a", "max_output_tokens": 7,
      "temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 3,
      "cache_scope": "mine", "speculation": "off", "stream": true,
      "include": ["message.output_text.logprobs"], "top_logprobs": 2,
      "chat_template_kwargs": {"enable_thinking": false},
      "parallel_tool_calls": false)");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_FLOAT_EQ(request.generation.sampling.temperature, 0.5f);
  EXPECT_EQ(request.generation.sampling.top_k, 4);
  EXPECT_EQ(request.generation.sampling.seed, 3u);
  EXPECT_EQ(request.generation.sampling.logprobs, 2);
  EXPECT_EQ(request.generation.cache_scope, "mine");
  EXPECT_EQ(request.generation.mode->ToString(), "off");
  EXPECT_EQ(request.conversation->variables, R"({"enable_thinking": false})");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.logprobs);
  EXPECT_TRUE(request.one_call);
}

TEST(ResponsesRequestTest, FieldsThatChangeNothingAreTaken) {
  for (
      const char* fields :
      {R"("store": false)", R"("store": null)",
       R"("prompt_cache_retention": "in_memory")",
       R"("previous_response_id": null)", R"("background": false)",
       R"("truncation": "disabled")", R"("service_tier": "auto")",
       R"("reasoning": {"effort": "medium", "summary": "auto"})",
       R"("reasoning": {"effort": null})",
       R"("text": {"format": {"type": "text"}, "verbosity": "medium"})",
       R"("include": ["reasoning.encrypted_content"])", R"("include": [])",
       R"("metadata": {"a": "b"})", R"("user": "u")",
       R"("prompt_cache_key": "k", "safety_identifier": "s")",
       R"("max_tool_calls": 3)", R"("top_logprobs": 0)",
       R"("tools": [], "tool_choice": "auto", "parallel_tool_calls": true)",
       R"("stream": true, "stream_options": {"include_obfuscation": false})"}) {
    EXPECT_FALSE(Read(absl::StrCat("\"input\": \"a\", ", fields)).with_tools);
  }
}

TEST(ResponsesRequestTest, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"input", ""},
      {"input", R"("input": 1)"},
      {"input", R"("input": [])"},
      {"input[0]", R"("input": ["a"])"},
      {"input[0].role", R"("input": [{"content": "a"}])"},
      {"input[0].role", R"("input": [{"role": "tool", "content": "a"}])"},
      {"input[0].content", R"("input": [{"role": "user"}])"},
      {"input[0].other",
       R"("input": [{"role": "user", "content": "a", "other": 1}])"},
      {"input[1].type", R"("input": [{"role": "user", "content": "a"},
                                     {"type": "item_reference", "id": "x"}])"},
      {"input[0].content[1].type",
       R"("input": [{"role": "user", "content": [
          {"type": "input_text", "text": "a"},
          {"type": "input_image", "image_url": "x"}]}])"},
      {"input[0].content[0].text",
       R"("input": [{"role": "user", "content": [{"type": "input_text"}]}])"},
      {"input[0].call_id", R"("input": [{"type": "function_call"}])"},
      {"input[0].arguments", R"("input": [{"type": "function_call",
                                           "call_id": "1", "name": "f"}])"},
      {"input[0].output",
       R"("input": [{"type": "function_call_output", "call_id": "1"}])"},
      {"input[0].content",
       R"("input": [{"type": "reasoning", "content": "a"}])"},
      {"input[0].content[0].type",
       R"("input": [{"type": "reasoning", "content": [
          {"type": "output_text", "text": "a"}]}])"},
      {"input[0].content[0].text",
       R"("input": [{"type": "reasoning", "content": [
          {"type": "reasoning_text"}]}])"},
      {"input", R"("input": [{"type": "reasoning", "content": []}])"},
      {"instructions", R"("input": "a", "instructions": ["b"])"},
      {"previous_response_id", R"("input": "a", "previous_response_id": "r")"},
      {"conversation", R"("input": "a", "conversation": "c")"},
      {"background", R"("input": "a", "background": true)"},
      {"prompt", R"("input": "a", "prompt": {"id": "p"})"},
      {"truncation", R"("input": "a", "truncation": "auto")"},
      {"reasoning.effort", R"("input": "a", "reasoning": {"effort": "some"})"},
      {"text.format.type",
       R"("input": "a", "text": {"format": {"type": "grammar"}})"},
      {"text.format.schema",
       R"("input": "a", "text": {"format": {"type": "json_schema"}})"},
      {"text.format.other", R"("input": "a", "text": {"format":
           {"type": "json_schema", "schema": {}, "other": 1}})"},
      {"guided_regex", R"("input": "a", "guided_regex": "a",
           "text": {"format": {"type": "json_object"}})"},
      {"response_format",
       R"("input": "a", "response_format": {"type": "json_object"})"},
      {"text.format.type", R"("input": "a",
           "text": {"format": {"type": "json_object"}},
           "tools": [{"type": "function", "name": "f"}])"},
      {"text.verbosity", R"("input": "a", "text": {"verbosity": "low"})"},
      {"include", R"("input": "a", "include": ["file_search_call.results"])"},
      {"top_logprobs", R"("input": "a", "top_logprobs": 2)"},
      {"max_output_tokens", R"("input": "a", "max_output_tokens": 0)"},
      {"max_tokens", R"("input": "a", "max_tokens": 1)"},
      {"messages", R"("input": "a", "messages": [])"},
      {"n", R"("input": "a", "n": 2)"},
      {"tool_choice", R"("input": "a", "tool_choice": "required")"},
      {"tools", R"("input": "a", "tools": {})"},
      {"tools[0]", R"("input": "a", "tools": [3])"},
      {"tools[1]", R"("input": "a", "tools": [
          {"type": "function", "name": "f"}, [], null])"},
      {"tools[0].type",
       R"("input": "a", "tools": [{"type": "web_search_preview"}])"},
      {"tools[0].name", R"("input": "a", "tools": [{"type": "function"}])"},
      {"tools[0].strict", R"("input": "a", "tools": [
          {"type": "function", "name": "f", "strict": 1}])"},
      {"tool_choice.name", R"("input": "a", "tools": [
          {"type": "function", "name": "f"}],
          "tool_choice": {"type": "function", "name": "g"})"},
      {"tool_choice.function", R"("input": "a", "tools": [
          {"type": "function", "name": "f"}],
          "tool_choice": {"type": "function", "name": "f", "function": {}})"},
      {"metadata", R"("input": "a", "metadata": {"a": 1})"},
      {"metadata", absl::StrCat(R"("input": "a", "metadata": {"a": ")",
                                std::string(5000, 'b'), "\"}")},
      {"store", R"("input": "a", "store": 1)"},
      {"store", R"("input": "a", "store": true)"},
      {"prompt_cache_retention",
       R"("input": "a", "prompt_cache_retention": "24h")"},
      {"foretoken.rounds", R"("input": "a", "foretoken": {"rounds": true})"}};
  for (const auto& [field, fields] : cases) {
    const auto request = ReadResponsesRequest(absl::StrCat("{", fields, "}"));
    ASSERT_FALSE(request.ok()) << fields;
    const ApiError error = ToApiError(request.status());
    EXPECT_EQ(error.http_status, 400) << fields;
    EXPECT_EQ(error.param, field) << fields << ": " << error.message;
    if (absl::EndsWith(field, "]") && absl::StartsWith(field, "tools")) {
      EXPECT_THAT(error.message, HasSubstr("want an object")) << fields;
    }
  }
}

TEST(ResponsesRequestTest, RepeatedFieldsAreLimitedTogether) {
  // `bytes` of an instruction beside a tool of some 200 KB.
  const auto read = [](size_t bytes) {
    return ReadResponsesRequest(absl::StrCat(
        R"({"input": "a", "instructions": ")", std::string(bytes, 'i'),
        R"(", "tools": [{"type": "function", "name": "f", "description": ")",
        std::string(200'000, 'd'), R"("}]})"));
  };
  const auto small = read(50'000);
  ASSERT_THAT(small, IsOk());
  const size_t left = kMaxRepeatedBytes - small->repeated.size();
  const auto full = read(50'000 + left);
  ASSERT_THAT(full, IsOk());
  EXPECT_THAT(full->repeated, SizeIs(kMaxRepeatedBytes));
  const auto over = read(50'000 + left + 1);
  ASSERT_FALSE(over.ok());
  const ApiError error = ToApiError(over.status());
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, "tools");  // the largest
  EXPECT_THAT(error.message, HasSubstr(absl::StrCat(kMaxRepeatedBytes)));
  EXPECT_EQ(ToApiError(read(250'000).status()).param, "instructions");
  // The input is not repeated.
  EXPECT_THAT(
      ReadResponsesRequest(absl::StrCat(
          R"({"input": ")", std::string(2 * kMaxRepeatedBytes, 'a'), "\"}")),
      IsOk());
}

TEST(ResponsesRequestTest, TheFormatOfItsTextIsAConstraint) {
  const ApiRequest schema = Read(R"("input": "a", "text": {"format":
      {"type": "json_schema", "name": "n", "strict": true,
       "schema": {"z": 1, "a": [2]}}})");
  EXPECT_EQ(
      schema.generation.constraint,
      (Constraint{Constraint::Kind::kJsonSchema, R"({"z": 1, "a": [2]})", {}}));
  EXPECT_EQ(schema.constraint_field, "text.format.schema");
  const ApiRequest object =
      Read(R"("input": "a", "text": {"format": {"type": "json_object"}})");
  EXPECT_EQ(object.generation.constraint.kind, Constraint::Kind::kJsonObject);
  const ApiRequest choice = Read(R"("input": "a", "guided_choice": ["x"])");
  EXPECT_THAT(choice.generation.constraint.choices, ElementsAre("x"));
}

class ResponsesTest : public GatewayServiceTest {
 protected:
  std::shared_ptr<FakeExchange> Respond(const std::string& fields) {
    return Post("/v1/responses",
                absl::StrCat(R"({"input": "ab")", fields, "}"));
  }
  static std::vector<std::string> Types(const FakeExchange& exchange) {
    std::vector<std::string> types;
    for (const Json& event : exchange.Events()) {
      types.push_back(event["type"].get<std::string>());
    }
    return types;
  }
};

TEST_F(ResponsesTest, AnAnswerSaysWhatFormatItsTextHas) {
  const auto exchange = Respond(R"(, "text": {"format":
      {"type": "json_schema", "name": "n",
       "schema": {"type": "object"}}})");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  call().Write("{}");
  call().Finish();
  EXPECT_EQ(exchange->Body()["text"], Json::parse(R"({"verbosity": "medium",
      "format": {"type": "json_schema", "name": "n",
                 "schema": {"type": "object"}}})"));
  const auto plain = Respond("");
  call(1).Write("x");
  call(1).Finish();
  EXPECT_EQ(
      plain->Body()["text"],
      Json::parse(R"({"verbosity": "medium", "format": {"type": "text"}})"));
}

constexpr char kTools[] = R"(, "tools": [
    {"type": "function",
     "name": "add"}])";
constexpr char kCall[] =
    "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";

TEST_F(ResponsesTest, AnAnswerIsOneObject) {
  const auto exchange =
      Respond(R"(, "instructions": "b", "metadata": {"k": "v"}, "user": "u",
              "temperature": 0.8, "max_output_tokens": 9)");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_THAT(call().request.prompt, ElementsAre(0, 3, 0, 2, 3));
  EXPECT_EQ(call().request.max_tokens, 9);
  call().Write("x");
  call().Write("y\"");
  call().Finish();
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_EQ(exchange->response.status, 200);
  Json body = exchange->Body();
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("resp_"));
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["created_at"], 1700000000);
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["status"], "completed");
  EXPECT_EQ(body["error"], nullptr);
  EXPECT_EQ(body["incomplete_details"], nullptr);
  EXPECT_EQ(body["instructions"], "b");
  EXPECT_EQ(body["metadata"], Json({{"k", "v"}}));
  EXPECT_EQ(body["user"], "u");
  EXPECT_EQ(body["temperature"], 0.8);
  EXPECT_EQ(body["top_p"], 1.0);
  EXPECT_EQ(body["max_output_tokens"], 9);
  EXPECT_EQ(body["store"], false);
  EXPECT_EQ(body["tools"], Json::array());
  EXPECT_EQ(body["tool_choice"], "auto");
  EXPECT_EQ(body["parallel_tool_calls"], true);
  EXPECT_EQ(body["previous_response_id"], nullptr);
  EXPECT_EQ(body["usage"],
            Json::parse(R"({"input_tokens": 3, "output_tokens": 2,
                            "total_tokens": 5,
                            "input_tokens_details": {"cached_tokens": 1},
                            "output_tokens_details": {"reasoning_tokens": 0}})"));
  EXPECT_EQ(body["foretoken"]["mode"], "auto");
  ASSERT_THAT(body["output"], SizeIs(1));
  EXPECT_FALSE(body["output"][0]["id"].get<std::string>().empty());
  body["output"][0].erase("id");
  EXPECT_EQ(body["output"][0], Json::parse(R"({
      "type": "message", "role": "assistant", "status": "completed",
      "content": [{"type": "output_text", "text": "xy\"", "annotations": [],
                   "logprobs": []}]})"));
}

TEST_F(ResponsesTest, AnAnswerOfNothingIsAnEmptyMessage) {
  const auto exchange = Respond("");
  call().Finish(0);
  EXPECT_EQ(exchange->Body()["output"][0]["content"][0]["text"], "");
}

TEST_F(ResponsesTest, AnAnswerThatIsCutSaysSo) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange = Respond(absl::StrCat(R"(, "stream": )", stream));
    FakeCall& writer = *generator_.calls.back();
    writer.Write("x");
    GenerationSummary summary;
    summary.finish = FinishReason::kLength;
    writer.listener->OnResult(summary);
    writer.End(absl::OkStatus());
    Json response;
    if (stream == std::string("true")) {
      EXPECT_EQ(Types(*exchange).back(), "response.incomplete");
      response = exchange->Events().back()["response"];
    } else {
      response = exchange->Body();
    }
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["incomplete_details"],
              Json({{"reason", "max_output_tokens"}}));
    EXPECT_EQ(response["output"][0]["status"], "incomplete");
  }
}

TEST_F(ResponsesTest, AStreamIsTypedEvents) {
  const auto exchange = Respond(R"(, "stream": true, "seed": 3)");
  EXPECT_EQ(exchange->streams, 0);
  call().Write("x");
  call().Write("y");
  call().Write("", {1});  // an end token writes nothing
  call().Finish();
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_THAT(exchange->response.content_type, HasSubstr("text/event-stream"));
  EXPECT_THAT(
      Types(*exchange),
      ElementsAre("response.created", "response.in_progress",
                  "response.output_item.added", "response.content_part.added",
                  "response.output_text.delta", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.completed"));
  const std::vector<Json> events = exchange->Events();
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], Json::array());
  EXPECT_EQ(events[0]["response"]["usage"], nullptr);
  const Json& item = events[2]["item"];
  EXPECT_EQ(item["status"], "in_progress");
  EXPECT_EQ(item["content"], Json::array());
  for (const size_t i : {3, 4, 5, 6, 7}) {
    EXPECT_EQ(events[i]["item_id"], item["id"]) << i;
    EXPECT_EQ(events[i]["output_index"], 0) << i;
    EXPECT_EQ(events[i]["content_index"], 0) << i;
  }
  EXPECT_EQ(events[3]["part"]["text"], "");
  EXPECT_EQ(events[4]["delta"], "x");
  EXPECT_EQ(events[4]["logprobs"], Json::array());
  EXPECT_EQ(events[6]["text"], "xy");
  EXPECT_EQ(events[7]["part"]["text"], "xy");
  EXPECT_EQ(events[8]["item"]["status"], "completed");
  const Json& response = events[9]["response"];
  EXPECT_EQ(response["id"], events[0]["response"]["id"]);
  EXPECT_EQ(response["output"][0], events[8]["item"]);
  EXPECT_EQ(response["usage"]["total_tokens"], 5);
  EXPECT_EQ(response["foretoken"]["seed"], 5);
}

TEST_F(ResponsesTest, CallsAreItemsOfTheirOwn) {
  const auto exchange = Respond(kTools);
  EXPECT_THAT(chat_->tokenizer().Decode(call().request.prompt).value(),
              HasSubstr("add"));
  call().Write("so ");
  call().Write(absl::StrCat(kCall, kCall));
  call().Finish();
  const Json output = exchange->Body()["output"];
  ASSERT_THAT(output, SizeIs(3));
  EXPECT_THAT(output[0]["content"][0]["text"].get<std::string>(),
              ::testing::StartsWith("so"));
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(output[i]["type"], "function_call");
    EXPECT_EQ(output[i]["name"], "add");
    EXPECT_EQ(output[i]["status"], "completed");
    EXPECT_EQ(Json::parse(output[i]["arguments"].get<std::string>()),
              Json({{"a", 1}}));
  }
  EXPECT_NE(output[1]["call_id"], output[2]["call_id"]);
  EXPECT_NE(output[1]["id"], output[2]["id"]);
}

TEST_F(ResponsesTest, CallsAreStreamed) {
  const auto exchange = Respond(absl::StrCat(kTools, R"(, "stream": true)"));
  const std::string text = kCall;
  for (size_t i = 0; i < text.size(); i += 7) call().Write(text.substr(i, 7));
  call().Finish();
  std::string arguments, id;
  int added = 0;
  for (const Json& event : exchange->Events()) {
    const std::string type = event["type"];
    EXPECT_EQ(type.find("output_text"), std::string::npos);
    if (type == "response.output_item.added") {
      ++added;
      id = event["item"]["id"];
      EXPECT_EQ(event["item"]["name"], "add");
      EXPECT_EQ(event["item"]["arguments"], "");
    } else if (type == "response.function_call_arguments.delta") {
      EXPECT_EQ(event["item_id"], id);
      arguments += event["delta"];
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], arguments);
      EXPECT_EQ(event["name"], "add");
    } else if (type == "response.output_item.done") {
      EXPECT_EQ(event["item"]["arguments"], arguments);
    }
  }
  EXPECT_EQ(added, 1);
  EXPECT_EQ(Json::parse(arguments), Json({{"a", 1}}));
  const Json response = exchange->Events().back()["response"];
  EXPECT_EQ(response["output"][0]["arguments"], arguments);
  // As the request has it, on one line.
  EXPECT_EQ(response["tools"][0]["name"], "add");
}

// One piece of the output may end a call and go on with text.
TEST_F(ResponsesTest, TextAfterACallIsAnItemAfterIt) {
  const std::string body(3000, 'b');
  const std::vector<std::string> pieces = {
      absl::StrCat("so ", kCall, " and "),
      absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": ")", body),
      "c\"}}</tool_call> then"};
  for (const bool stream : {false, true}) {
    const auto exchange =
        Respond(absl::StrCat(kTools, stream ? R"(, "stream": true)" : ""));
    FakeCall& writer = *generator_.calls.back();
    for (const std::string& piece : pieces) writer.Write(piece);
    writer.Finish();
    const Json response =
        stream ? exchange->Events().back()["response"] : exchange->Body();
    const Json& output = response["output"];
    ASSERT_THAT(output, SizeIs(5)) << response.dump();
    EXPECT_EQ(Json::parse(output[1]["arguments"].get<std::string>()),
              Json({{"a", 1}}));
    EXPECT_THAT(output[2]["content"][0]["text"].get<std::string>(),
                HasSubstr("and"));
    EXPECT_EQ(Json::parse(output[3]["arguments"].get<std::string>())["a"],
              absl::StrCat(body, "c"));
    EXPECT_THAT(output[4]["content"][0]["text"].get<std::string>(),
                HasSubstr("then"));
  }
}

TEST_F(ResponsesTest, ACallThatIsCutOffIsIncomplete) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange =
        Respond(absl::StrCat(kTools, R"(, "stream": )", stream));
    FakeCall& writer = *generator_.calls.back();
    writer.Write(
        absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": ")",
                     std::string(5000, 'b')));
    writer.Finish();
    const Json response = stream == std::string("true")
                              ? exchange->Events().back()["response"]
                              : exchange->Body();
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["output"][0]["type"], "function_call");
    EXPECT_EQ(response["output"][0]["status"], "incomplete");
  }
}

TEST_F(ResponsesTest, CallsOfOtherToolsAreText) {
  const auto exchange = Respond(kTools);
  const std::string text =
      R"(<tool_call>{"name": "sub", "arguments": {}}</tool_call>)";
  call().Write(text);
  call().Finish();
  const Json body = exchange->Body();
  EXPECT_EQ(body["status"], "completed");
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], text);
}

TEST_F(ResponsesTest, LogprobsAreThoseOfTheText) {
  GenerationDelta delta;
  delta.text = "th";
  delta.token_ids = {31};
  delta.drafters = {DrafterId::kTarget};
  delta.logprobs = {{31, -0.5f, {{31, -0.5f}}}};
  GenerationDelta silent = delta;
  silent.text = "";
  const Json one = Json::parse(R"({"token": "th", "logprob": -0.5,
      "bytes": [116, 104], "top_logprobs": [
        {"token": "th", "logprob": -0.5, "bytes": [116, 104]}]})");
  for (const char* stream : {"false", "true"}) {
    const auto exchange = Respond(absl::StrCat(
        R"(, "include": ["message.output_text.logprobs"], "top_logprobs": 1,
           "stream": )",
        stream));
    FakeCall& writer = *generator_.calls.back();
    writer.listener->OnDelta(silent);
    writer.listener->OnDelta(delta);
    writer.listener->OnDelta(silent);
    writer.Finish();
    if (stream == std::string("false")) {
      EXPECT_EQ(exchange->Body()["output"][0]["content"][0]["logprobs"],
                Json({one, one, one}));
      continue;
    }
    for (const Json& event : exchange->Events()) {
      if (event["type"] == "response.output_text.delta") {
        EXPECT_EQ(event["logprobs"], Json({one, one}));
      } else if (event["type"] == "response.output_text.done") {
        EXPECT_EQ(event["logprobs"], Json({one, one, one}));
      }
    }
  }
}

TEST_F(ResponsesTest, TokensAreEventsOrAPartOfTheBody) {
  const Json token =
      Json::parse(R"({"id": 25, "text": "x", "drafter": "target"})");
  const auto body = Respond(R"(, "foretoken": {"tokens": true})");
  call(0).Write("x", {25});
  call(0).Finish();
  EXPECT_EQ(body->Body()["foretoken"]["tokens"], Json({token}));
  EXPECT_EQ(body->Body()["foretoken"]["mode"], "auto");
  const auto stream =
      Respond(R"(, "foretoken": {"tokens": true}, "stream": true)");
  call(1).Write("x", {25});
  call(1).Finish();
  const Json event = stream->Events()[2];
  EXPECT_EQ(event["type"], "response.foretoken.delta");
  EXPECT_EQ(event["foretoken"]["tokens"], Json({token}));
}

TEST_F(ResponsesTest, AStreamThatBreaksSaysThatItFailed) {
  const auto exchange = Respond(R"(, "stream": true)");
  call().Write("x");
  call().End(absl::AbortedError("lost"));
  EXPECT_EQ(exchange->ends, 1);
  const std::vector<Json> events = exchange->Events();
  const Json& error = events[events.size() - 2];
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["message"], "lost");
  EXPECT_EQ(error["code"], "server_error");
  const Json& failed = events.back();
  EXPECT_EQ(failed["type"], "response.failed");
  EXPECT_EQ(failed["response"]["status"], "failed");
  EXPECT_EQ(failed["response"]["error"],
            Json({{"code", "server_error"}, {"message", "lost"}}));
  EXPECT_EQ(failed["response"]["output"][0]["content"][0]["text"], "x");
  EXPECT_EQ(failed["response"]["output"][0]["status"], "incomplete");
}

TEST_F(ResponsesTest, ARefusalIsAnErrorLikeAnyOther) {
  const auto too_long = Respond(R"(, "max_output_tokens": 98)");
  EXPECT_EQ(too_long->response.status, 400);
  EXPECT_EQ(too_long->Body()["error"]["param"], "max_output_tokens");
  EXPECT_EQ(too_long->Body()["error"]["code"], "context_length_exceeded");
  generator_.refusal = absl::ResourceExhaustedError("full");
  const auto refused = Respond(R"(, "stream": true)");
  EXPECT_EQ(refused->streams, 0);
  EXPECT_EQ(refused->response.status, 429);
}

TEST(ResponsesMemoryTest, AStreamIsChargedForWhatItRepeats) {
  ApiRequest request;
  request.prompts = {std::string("a")};
  request.stream = true;
  const int64_t chat = GenerationExchange::Bytes(request, 1000);
  request.repeated = std::string(1000, 'a');
  EXPECT_GE(GenerationExchange::Bytes(request, 1000), chat + 9 * 1000);
}

TEST(ResponsesMemoryTest, AStreamIsNotChargedForWhatItMayWrite) {
  ApiRequest request;
  request.prompts = {std::string("a")};
  request.stream = true;
  request.repeated = ",";
  const int64_t shortest = GenerationExchange::Bytes(request, 1);
  request.logprobs = true;
  request.generation.sampling.logprobs = 20;
  EXPECT_EQ(GenerationExchange::Bytes(request, 1 << 20), shortest);
}

TEST_F(ResponsesTest, AStreamThatOutgrowsTheMemoryFailsAlone) {
  constexpr char kStream[] = R"(, "stream": true)";
  const auto large = Respond(kStream);
  const auto small = Respond(kStream);
  const int64_t two = memory_.used();
  // The share holds twelve copies of the output, and the budget is a million
  // bytes.
  const std::string text(1000, 'a');
  int64_t written = 0;
  int64_t grown = 0;
  int64_t used = two;
  for (; large->ends == 0; ++written) {
    ASSERT_LT(written, 1000);
    EXPECT_TRUE(call(0).Write(text));
    if (std::exchange(used, memory_.used()) < memory_.used()) ++grown;
  }
  EXPECT_GT(written, 20);
  EXPECT_GT(grown, 2);
  EXPECT_EQ(call(0).cancelled, 1);
  EXPECT_THAT(observer_.statuses, ElementsAre(429));
  const std::vector<Json> events = large->Events();
  EXPECT_EQ(events[events.size() - 2]["type"], "error");
  EXPECT_EQ(events[events.size() - 2]["code"], "rate_limit_exceeded");
  const Json& failed = events.back();
  EXPECT_EQ(failed["type"], "response.failed");
  EXPECT_EQ(failed["response"]["error"]["code"], "rate_limit_exceeded");
  // All of the text that was sent.
  EXPECT_EQ(failed["response"]["output"][0]["content"][0]["text"]
                .get_ref<const std::string&>()
                .size(),
            static_cast<size_t>(written) * text.size());
  call(0).End(absl::CancelledError("cancelled"));
  EXPECT_EQ(memory_.used(), two / 2);
  EXPECT_EQ(small->ends, 0);
  call(1).Write(std::string(5000, 'a'));
  EXPECT_GT(memory_.used(), two / 2);
  call(1).Finish();
  EXPECT_EQ(Types(*small).back(), "response.completed");
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(ResponsesTest, LogprobsAndCallsCountAsKept) {
  const auto exchange =
      Respond(absl::StrCat(kTools, R"(, "stream": true, "top_logprobs": 1,
                 "include": ["message.output_text.logprobs"])"));
  GenerationDelta silent;
  silent.token_ids = {31};
  silent.drafters = {DrafterId::kTarget};
  silent.logprobs = {{31, -0.5f, {{31, -0.5f}}}};
  const int64_t before = memory_.used();
  for (int i = 0; i < 50; ++i) call().listener->OnDelta(silent);
  const int64_t with_logprobs = memory_.used();
  EXPECT_GT(with_logprobs, before);
  call().Write(
      absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": ")",
                   std::string(20000, 'b')));
  EXPECT_GE(memory_.used(), 12 * 20000);
  call().Finish();
  EXPECT_EQ(memory_.used(), 0);
}

}  // namespace
}  // namespace foretoken::gateway
