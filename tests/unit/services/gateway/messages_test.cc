// POST /v1/messages and /v1/messages/count_tokens, from the request to the
// answer.
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kTools[] = R"(, "tools": [
    {"name": "add", "input_schema": {"type": "object"}}])";
constexpr char kCall[] =
    "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";

// The data of each event, whose type is its event's name.
std::vector<Json> EventsOf(const FakeExchange& exchange) {
  std::vector<Json> events;
  for (absl::string_view frame :
       absl::StrSplit(exchange.response.body, "\n\n", absl::SkipEmpty())) {
    const std::vector<absl::string_view> lines = absl::StrSplit(frame, '\n');
    EXPECT_THAT(lines, SizeIs(2)) << frame;
    absl::string_view name = lines.front(), data = lines.back();
    EXPECT_TRUE(absl::ConsumePrefix(&name, "event: ")) << frame;
    EXPECT_TRUE(absl::ConsumePrefix(&data, "data: ")) << frame;
    events.push_back(Json::parse(data.begin(), data.end()));
    EXPECT_EQ(events.back()["type"], std::string(name));
  }
  return events;
}

std::vector<std::string> TypesOf(const FakeExchange& exchange) {
  std::vector<std::string> types;
  for (const Json& event : EventsOf(exchange)) {
    types.push_back(event["type"].get<std::string>());
  }
  return types;
}

// The message that a client puts together from the events.
Json MessageOf(const FakeExchange& exchange) {
  Json message;
  std::string input;
  bool open = false;
  for (const Json& event : EventsOf(exchange)) {
    const std::string type = event["type"];
    if (type == "message_start") {
      message = event["message"];
    } else if (type == "content_block_start") {
      EXPECT_FALSE(std::exchange(open, true));
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      input.clear();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      Json& block = message["content"].back();
      EXPECT_EQ(event["index"], message["content"].size() - 1);
      for (const auto& [member, piece] : event["delta"].items()) {
        if (member == "type") continue;
        const std::string text = piece;
        if (member == "partial_json") {
          input += text;
        } else {
          block[member] = block[member].get<std::string>() + text;
        }
      }
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(std::exchange(open, false));
      Json& block = message["content"].back();
      if (block["type"] == "tool_use" && !input.empty()) {
        block["input"] = Json::parse(input);
      }
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
      message["foretoken"] = event["foretoken"];
    }
  }
  EXPECT_FALSE(open);
  return message;
}

class MessagesTest : public GatewayServiceTest {
 protected:
  MessagesTest() { generator_.info.max_positions = 1000; }
  std::shared_ptr<FakeExchange> Ask(const std::string& fields,
                                    HttpHeaders headers = {}) {
    return Post("/v1/messages",
                absl::StrCat(R"({"max_tokens": 9, "messages": [
                    {"role": "user", "content": "ab"}])",
                             fields, "}"),
                std::move(headers));
  }
  std::shared_ptr<FakeExchange> Count(const std::string& fields) {
    return Post("/v1/messages/count_tokens", absl::StrCat(R"({"messages": [
                    {"role": "user", "content": "ab"}])",
                                                          fields, "}"));
  }
  FakeCall& last() { return *generator_.calls.back(); }
  void FinishBy(FinishReason reason, const std::string& stop_string = "") {
    GenerationSummary summary;
    summary.finish = reason;
    summary.stop_string = stop_string;
    last().listener->OnResult(summary);
    last().End(absl::OkStatus());
  }
};

TEST_F(MessagesTest, AnAnswerIsAMessage) {
  const auto exchange = Ask(R"(, "system": "b", "temperature": 0.8)");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_THAT(call().request.prompt, ElementsAre(0, 3, 0, 2, 3));
  EXPECT_EQ(call().request.max_tokens, 9);
  call().Write("x");
  call().Write("y\"");
  call().Finish();
  EXPECT_EQ(exchange->response.status, 200);
  EXPECT_FALSE(exchange->Header("Request-Id").empty());
  EXPECT_EQ(exchange->Header("Request-Id"), exchange->Header("X-Request-Id"));
  Json body = exchange->Body();
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("msg_"));
  body.erase("id");
  EXPECT_EQ(body["foretoken"]["mode"], "auto");
  body.erase("foretoken");
  EXPECT_EQ(body, Json::parse(R"({
      "type": "message", "role": "assistant", "model": "demo",
      "content": [{"type": "text", "text": "xy\""}],
      "stop_reason": "end_turn", "stop_sequence": null,
      "usage": {"input_tokens": 2, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 1, "output_tokens": 2}})"));
}

TEST_F(MessagesTest, AStreamIsTypedEvents) {
  const auto exchange = Ask(R"(, "stream": true)");
  EXPECT_EQ(exchange->streams, 0);
  call().Write("x");
  call().Write("y");
  call().Write("", {1});  // an end token writes nothing
  call().Finish();
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_THAT(exchange->response.content_type, HasSubstr("text/event-stream"));
  EXPECT_THAT(
      TypesOf(*exchange),
      ElementsAre("message_start", "ping", "content_block_start",
                  "content_block_delta", "content_block_delta",
                  "content_block_stop", "message_delta", "message_stop"));
  const std::vector<Json> events = EventsOf(*exchange);
  const Json& message = events[0]["message"];
  EXPECT_EQ(message["content"], Json::array());
  EXPECT_EQ(message["stop_reason"], nullptr);
  EXPECT_EQ(message["usage"]["input_tokens"], 3);  // <s>, a and b
  EXPECT_EQ(message["usage"]["output_tokens"], 0);
  EXPECT_EQ(events[3], Json::parse(R"({"type": "content_block_delta",
      "index": 0, "delta": {"type": "text_delta", "text": "x"}})"));
  EXPECT_EQ(events[6]["delta"], Json::parse(R"({"stop_reason": "end_turn",
                                                "stop_sequence": null})"));
  EXPECT_EQ(events[6]["usage"]["cache_read_input_tokens"], 1);
}

TEST_F(MessagesTest, AnAnswerOfNothingHasNoBlocks) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange = Ask(absl::StrCat(R"(, "stream": )", stream));
    last().Finish(0);
    const Json message =
        stream == std::string("true") ? MessageOf(*exchange) : exchange->Body();
    EXPECT_THAT(message["content"], IsEmpty());
    EXPECT_EQ(message["stop_reason"], "end_turn");
  }
}

TEST_F(MessagesTest, TheReasonOfTheEndIsNamed) {
  const auto ended = [this](const std::string& fields, FinishReason reason,
                            const std::string& stop_string = "") {
    const auto exchange = Ask(fields);
    last().Write("x");
    FinishBy(reason, stop_string);
    return exchange->Body();
  };
  EXPECT_EQ(ended("", FinishReason::kLength)["stop_reason"], "max_tokens");
  const Json stopped =
      ended(R"(, "stop_sequences": ["\n"])", FinishReason::kStop, "\n");
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "\n");
  EXPECT_THAT(last().request.stop_strings, ElementsAre("\n"));
}

TEST_F(MessagesTest, CallsAreBlocks) {
  const auto exchange = Ask(kTools);
  EXPECT_THAT(chat_->tokenizer().Decode(call().request.prompt).value(),
              HasSubstr("add"));
  call().Write("so ");
  call().Write(absl::StrCat(kCall, kCall));
  call().Finish();
  const Json body = exchange->Body();
  EXPECT_EQ(body["stop_reason"], "tool_use");
  ASSERT_THAT(body["content"], SizeIs(3));
  EXPECT_EQ(body["content"][0]["type"], "text");
  for (const size_t i : {1, 2}) {
    Json block = body["content"][i];
    EXPECT_FALSE(block["id"].get<std::string>().empty());
    block.erase("id");
    EXPECT_EQ(block, Json::parse(R"({"type": "tool_use", "name": "add",
                                     "input": {"a": 1}})"));
  }
  EXPECT_NE(body["content"][1]["id"], body["content"][2]["id"]);
}

// One piece of the output may end a call and go on with text.
TEST_F(MessagesTest, TextAfterACallIsABlockAfterIt) {
  const std::string body(3000, 'b');
  const std::vector<std::string> pieces = {
      absl::StrCat("so ", kCall, " and "),
      absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": ")", body),
      "c\"}}</tool_call> then"};
  for (const bool stream : {false, true}) {
    const auto exchange =
        Ask(absl::StrCat(kTools, stream ? R"(, "stream": true)" : ""));
    for (const std::string& piece : pieces) last().Write(piece);
    last().Finish();
    const Json message = stream ? MessageOf(*exchange) : exchange->Body();
    const Json& blocks = message["content"];
    ASSERT_THAT(blocks, SizeIs(5)) << message.dump();
    EXPECT_EQ(blocks[1]["input"], Json::parse(R"({"a": 1})"));
    EXPECT_THAT(blocks[2]["text"].get<std::string>(), HasSubstr("and"));
    EXPECT_EQ(blocks[3]["input"]["a"], absl::StrCat(body, "c"));
    EXPECT_THAT(blocks[4]["text"].get<std::string>(), HasSubstr("then"));
  }
}

TEST_F(MessagesTest, OneCallIsAllThatADisabledParallelUseGives) {
  const auto exchange = Ask(absl::StrCat(kTools,
                                         R"(, "tool_choice": {"type": "auto",
                           "disable_parallel_tool_use": true})"));
  call().Write(absl::StrCat(kCall, kCall));
  call().Finish();
  EXPECT_THAT(exchange->Body()["content"], SizeIs(1));
  EXPECT_EQ(exchange->Body()["stop_reason"], "tool_use");
}

TEST_F(MessagesTest, ChoicesOfToolsConstrainTheAnswer) {
  Ask(absl::StrCat(kTools, R"(, "tool_choice": {"type": "any"})"));
  EXPECT_EQ(last().request.constraint.kind, Constraint::Kind::kToolCalls);
  EXPECT_THAT(last().request.constraint.source, HasSubstr("\"add\""));
  EXPECT_THAT(last().request.constraint.source,
              ::testing::Not(HasSubstr("\"max_calls\": 1,")));
  Ask(absl::StrCat(kTools, R"(, "tool_choice": {"type": "tool", "name": "add",
                                "disable_parallel_tool_use": true})"));
  EXPECT_THAT(last().request.constraint.source, HasSubstr("\"max_calls\": 1,"));
  Ask(absl::StrCat(kTools, R"(, "tool_choice": {"type": "none"})"));
  EXPECT_TRUE(last().request.constraint.empty());
}

TEST_F(MessagesTest, ACallThatIsCutOffHasWhatIsWholeOfItsInput) {
  const std::string text =
      absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": 1, "b": ")",
                   std::string(5000, 'b'));
  const auto exchange = Ask(kTools);
  last().Write(text);
  FinishBy(FinishReason::kLength);
  const Json body = exchange->Body();
  EXPECT_EQ(body["stop_reason"], "max_tokens");
  EXPECT_EQ(body["content"][0]["type"], "tool_use");
  EXPECT_EQ(body["content"][0]["input"], Json::parse(R"({"a": 1})"));
  const auto stream = Ask(absl::StrCat(kTools, R"(, "stream": true)"));
  last().Write(text);
  last().Finish();
  EXPECT_EQ(EventsOf(*stream).rbegin()[1]["delta"]["stop_reason"],
            "max_tokens");
}

TEST_F(MessagesTest, AStopStringWithinACallEndsTheAnswer) {
  const std::string fields =
      absl::StrCat(kTools, R"(, "stop_sequences": ["\n"])");
  const auto cut = Ask(fields);
  last().Write(
      absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": ")",
                   std::string(5000, 'b')));
  FinishBy(FinishReason::kStop, "\n");
  EXPECT_EQ(cut->Body()["stop_reason"], "stop_sequence");
  EXPECT_EQ(cut->Body()["stop_sequence"], "\n");
  EXPECT_EQ(cut->Body()["content"][0]["type"], "tool_use");
  // One after a whole call leaves the call to be answered.
  const auto whole = Ask(fields);
  last().Write(kCall);
  FinishBy(FinishReason::kStop, "\n");
  EXPECT_EQ(whole->Body()["stop_reason"], "tool_use");
  EXPECT_EQ(whole->Body()["stop_sequence"], nullptr);
}

// However the output is cut, the events add up to the body.
TEST_F(MessagesTest, AStreamInAnyChunksIsTheWhole) {
  std::mt19937 random(5);
  for (const std::string& text : std::vector<std::string>{
           "plain \"text\"\n", absl::StrCat("so ", kCall, "\n", kCall),
           absl::StrCat(kCall, " and then"), "<tool_call>no call</tool_call>",
           "```json\n{\"name\": \"add\", \"arguments\": {}}\n```", ""}) {
    const auto whole = Ask(kTools);
    last().Write(text);
    last().Finish();
    Json body = whole->Body();
    for (int round = 0; round < 20; ++round) {
      const auto stream = Ask(absl::StrCat(kTools, R"(, "stream": true)"));
      for (size_t at = 0; at < text.size();) {
        const size_t size = 1 + random() % 9;
        last().Write(text.substr(at, size));
        at += size;
      }
      last().Finish();
      Json message = MessageOf(*stream);
      for (Json* each : {&body, &message}) {
        each->erase("id");
        for (Json& block : (*each)["content"]) block.erase("id");
      }
      ASSERT_EQ(message, body) << text << " round " << round;
    }
  }
}

TEST_F(MessagesTest, TokensAreEventsOrAPartOfTheBody) {
  const Json token =
      Json::parse(R"({"id": 25, "text": "x", "drafter": "target"})");
  const auto body = Ask(R"(, "foretoken": {"tokens": true})");
  last().Write("x", {25});
  last().Finish();
  EXPECT_EQ(body->Body()["foretoken"]["tokens"], Json({token}));
  const auto stream = Ask(R"(, "foretoken": {"tokens": true}, "stream": true)");
  last().Write("x", {25});
  last().Finish();
  const Json event = EventsOf(*stream)[2];
  EXPECT_EQ(event["type"], "foretoken_delta");
  EXPECT_EQ(event["foretoken"]["tokens"], Json({token}));
}

TEST_F(MessagesTest, ErrorsHaveAnthropicsForm) {
  const auto wrong = Ask(R"(, "top_k": -7)", {{"X-Request-Id", "mine"}});
  EXPECT_EQ(wrong->response.status, 400);
  EXPECT_EQ(wrong->Header("Request-Id"), "mine");
  EXPECT_EQ(wrong->Body()["type"], "error");
  EXPECT_EQ(wrong->Body()["request_id"], "mine");
  EXPECT_EQ(wrong->Body()["error"]["type"], "invalid_request_error");
  EXPECT_THAT(wrong->Body()["error"]["message"].get<std::string>(),
              StartsWith("top_k: "));
  const auto missing = Ask(R"(, "model": "claude")");
  EXPECT_EQ(missing->response.status, 404);
  EXPECT_EQ(missing->Body()["error"]["type"], "not_found_error");
  EXPECT_EQ(Get("/v1/messages")->response.status, 405);
  EXPECT_EQ(Get("/v1/messages")->Body()["type"], "error");
  EXPECT_EQ(Get("/v1/messages/batches")->Body()["error"]["type"],
            "not_found_error");
  const auto long_one = Post("/v1/messages", R"({"max_tokens": 998, "messages":
      [{"role": "user", "content": "ab"}]})");
  EXPECT_EQ(long_one->response.status, 400);
  EXPECT_THAT(long_one->response.body, HasSubstr("max_tokens: "));
  generator_.refusal = absl::ResourceExhaustedError("full");
  const auto full = Ask(R"(, "stream": true)");
  EXPECT_EQ(full->response.status, 429);
  EXPECT_EQ(full->streams, 0);
  EXPECT_EQ(full->Body()["error"]["type"], "rate_limit_error");
  EXPECT_FALSE(full->Header("Retry-After").empty());
  generator_.ready = false;
  EXPECT_EQ(Ask("")->Body()["error"]["type"], "overloaded_error");
}

TEST_F(MessagesTest, AKeyIsNeededAndMayComeInXApiKey) {
  Make({}, /*with_keys=*/true);
  const auto refused = Ask("");
  EXPECT_EQ(refused->response.status, 401);
  EXPECT_EQ(refused->Body()["error"]["type"], "authentication_error");
  Ask("", {{"x-api-key", "right"}});
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_EQ(call().request.caller.name, "alice");
  EXPECT_EQ(Count("")->response.status, 401);
}

TEST_F(MessagesTest, PrefixesAreSharedAsByCompletions) {
  Make({}, /*with_keys=*/true);
  const HttpHeaders key = {{"x-api-key", "right"}};
  Post("/v1/completions", R"({"prompt": "ab"})", key);
  last().Finish();
  const std::string own = last().request.prefix_scope;
  EXPECT_NE(own, "");
  Ask("", key);
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, own);
  EXPECT_EQ(last().request.cache_scope, "");
  for (const char* field : {"cache_scope", "prompt_cache_key"}) {
    Ask(absl::StrCat(R"(, ")", field, R"(": "a")"), key);
    last().Finish();
    EXPECT_EQ(last().request.prefix_scope, "") << field;
    EXPECT_EQ(last().request.cache_scope, "a") << field;
  }
  Ask(R"(, "cache_scope": "")", key);
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, "");
  EXPECT_EQ(last().request.cache_scope, "");
  // A server without keys knows no callers.
  Make();
  Ask("");
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, "");
}

TEST_F(MessagesTest, EveryAnswerNamesItsRequest) {
  const HttpHeaders named = {{"X-Request-Id", "mine"}};
  EXPECT_EQ(Get("/v1/messages", named)->Header("Request-Id"), "mine");
  EXPECT_EQ(Get("/v1/messages/batches", named)->Header("Request-Id"), "mine");
  EXPECT_EQ(Get("/v1/models", named)->Header("Request-Id"), "");
  // Those that come before the body, too.
  HttpRequest head;
  head.path = "/v1/messages";
  for (const bool has_name : {false, true}) {
    if (has_name) head.headers = named;
    std::string name;
    for (const auto& [header, value] : service_->HeadersOfRefusal(head)) {
      if (header == "Request-Id") name = value;
    }
    EXPECT_EQ(name == "mine", has_name);
    EXPECT_NE(name, "");
  }
  Make({}, /*with_keys=*/true);
  const auto refused = Ask("", named);
  EXPECT_EQ(refused->response.status, 401);
  EXPECT_EQ(refused->Header("Request-Id"), "mine");
}

TEST_F(MessagesTest, VersionsWithTheseEventsAreServed) {
  const auto refused = Ask("", {{"anthropic-version", "2023-01-01"}});
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_THAT(refused->Body()["error"]["message"].get<std::string>(),
              HasSubstr("want 2026-10-21 or 2023-06-01"));
  EXPECT_THAT(generator_.calls, IsEmpty());
  Ask("", {{"anthropic-version", "2023-06-01"}, {"anthropic-beta", "a,b"}});
  Ask(R"(, "temperature": 0)", {{"anthropic-version", "2026-10-21"}});
  EXPECT_THAT(generator_.calls, SizeIs(2));
}

TEST_F(MessagesTest, AStreamThatBreaksEndsWithTheError) {
  const auto exchange = Ask(R"(, "stream": true)");
  call().Write("x");
  call().End(absl::AbortedError("lost"));
  EXPECT_EQ(exchange->ends, 1);
  const Json error = EventsOf(*exchange).back();
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"], Json::parse(R"({"type": "overloaded_error",
                                            "message": "lost"})"));
}

TEST_F(MessagesTest, TokensAreCountedAsTheyAreUsed) {
  for (const std::string& fields :
       {std::string(), std::string(R"(, "system": "abc")"), std::string(kTools),
        absl::StrCat(kTools, R"(, "tool_choice": {"type": "none"})")}) {
    const auto counted = Count(fields);
    EXPECT_EQ(counted->response.status, 200) << fields;
    EXPECT_THAT(generator_.calls, IsEmpty()) << fields;
    Ask(fields);
    EXPECT_EQ(counted->Body(),
              Json({{"input_tokens", last().request.prompt.size()}}))
        << fields;
    last().Finish();
    generator_.calls.clear();
  }
  EXPECT_EQ(Count(R"(, "max_tokens": 3)")->response.status, 400);
  EXPECT_EQ(Count(R"(, "model": "other")")->Body()["error"]["type"],
            "not_found_error");
  EXPECT_EQ(memory_.used(), 0);
}

constexpr TokenId kOpen = 101;
constexpr TokenId kClose = 102;

// Writes the closing tag if the request says that it is not to think.
constexpr char kThinks[] =
    "{% for message in messages %}{{ message.content }}"
    "{{ message.reasoning_content }}{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}{# </think> #}";

class ThinkingMessagesTest : public MessagesTest {
 protected:
  ThinkingMessagesTest() { Use(kThinks); }
  void Use(const char* source) {
    chat_ = ModelChat::Create(testing::MakeAsciiTokenizer(R"([
                    {"id": 100, "content": "</s>", "special": true},
                    {"id": 101, "content": "<think>", "special": false},
                    {"id": 102, "content": "</think>", "special": false}])"),
                              source)
                .value();
    service_ = nullptr;
  }
  void WriteAnswer() {
    last().Write("<think>", {kOpen});
    last().Write("\na", {95, 'a' - '!'});
    last().Write("b\n</think>\n\nc",
                 {'b' - '!', 95, kClose, 95, 95, 'c' - '!'});
    last().Finish(9);
  }
};

TEST_F(ThinkingMessagesTest, ThoughtsAreABlock) {
  const auto whole = Ask("");
  WriteAnswer();
  const Json body = whole->Body();
  EXPECT_EQ(body["content"], Json::parse(R"([
      {"type": "thinking", "thinking": "ab", "signature": "foretoken"},
      {"type": "text", "text": "c"}])"));
  EXPECT_EQ(body["usage"]["output_tokens_details"],
            Json({{"thinking_tokens", 6}}));
  const auto stream = Ask(R"(, "stream": true)");
  WriteAnswer();
  EXPECT_EQ(MessageOf(*stream)["content"], body["content"]);
  EXPECT_EQ(MessageOf(*stream)["usage"], body["usage"]);
  std::vector<std::string> deltas;
  for (const Json& event : EventsOf(*stream)) {
    if (event["type"] == "content_block_delta" && event["index"] == 0) {
      deltas.push_back(event["delta"]["type"].get<std::string>());
    }
  }
  EXPECT_EQ(deltas.front(), "thinking_delta");
  EXPECT_EQ(deltas.back(), "signature_delta");
  // The message goes back as it is.
  Post("/v1/messages",
       absl::StrCat(R"({"max_tokens": 9, "messages": [
           {"role": "assistant", "content": )",
                    DumpJson(body["content"]),
                    R"(}, {"role": "user", "content": "d"}]})"));
  EXPECT_EQ(chat_->tokenizer().Decode(last().request.prompt).value(), "cabd");
}

constexpr char kIgnoredFields[] = "X-Foretoken-Ignored-Fields";
constexpr char kOff[] = R"(, "thinking": {"type": "disabled"})";
constexpr char kOn[] =
    R"(, "thinking": {"type": "enabled", "budget_tokens": 4})";

TEST_F(ThinkingMessagesTest, ThinkingIsTurnedOnAndOff) {
  const auto off = Ask(kOff);
  EXPECT_EQ(off->ends, 0);
  EXPECT_THAT(chat_->tokenizer().Decode(last().request.prompt).value(),
              HasSubstr("</think>"));
  EXPECT_EQ(Count(kOff)->Body()["input_tokens"], last().request.prompt.size());
  last().Finish();
  EXPECT_EQ(off->Header(kIgnoredFields), "");
  const auto on = Ask(kOn);
  EXPECT_EQ(chat_->tokenizer().Decode(last().request.prompt).value(), "ab");
  last().Finish();
  EXPECT_EQ(on->response.status, 200);
  EXPECT_EQ(on->Header(kIgnoredFields), "thinking.budget_tokens");
  EXPECT_EQ(Count(kOn)->Header(kIgnoredFields), "thinking.budget_tokens");
  EXPECT_EQ(Ask(R"(, "thinking": {"type": "adaptive"})")->ends, 0);
}

TEST_F(ThinkingMessagesTest, WishesThatTheModelDoesNotKeepAreRefused) {
  // A template that always thinks.
  Use("{{ messages[0].content }}<think>\n{# </think> #}");
  const auto off = Ask(kOff);
  EXPECT_EQ(off->response.status, 400);
  EXPECT_THAT(off->response.body, HasSubstr("thinking: "));
  EXPECT_EQ(Count(kOff)->response.status, 400);
  // One that never does: nothing is left to turn on or off.
  Use("{{ messages[0].content }}");
  for (const char* fields : {kOff, kOn}) {
    const auto taken = Ask(fields);
    last().Finish();
    EXPECT_EQ(taken->response.status, 200);
    const std::vector<std::string> ignored =
        absl::StrSplit(taken->Header(kIgnoredFields), ", ");
    EXPECT_THAT(ignored, ::testing::Contains("thinking"));
  }
}

TEST_F(ThinkingMessagesTest, AnEffortGoesToATemplateThatReadsIt) {
  constexpr char kLow[] = R"(, "output_config": {"effort": "low"})";
  constexpr char kHigh[] = R"(, "output_config": {"effort": "high"})";
  // Without levels, as Anthropic's default or not at all.
  const auto high = Ask(kHigh);
  last().Finish();
  EXPECT_EQ(high->response.status, 200);
  EXPECT_EQ(high->Header(kIgnoredFields), "output_config.effort");
  const auto low = Ask(kLow);
  EXPECT_EQ(low->response.status, 400);
  EXPECT_THAT(low->response.body, HasSubstr("want high or none"));
  EXPECT_EQ(Count(kLow)->response.status, 400);
  Use("{{ messages[0].content }}{{ reasoning_effort }}");
  Ask(kLow);
  EXPECT_EQ(chat_->tokenizer().Decode(last().request.prompt).value(), "ablow");
  EXPECT_EQ(Count(kLow)->Body()["input_tokens"], last().request.prompt.size());
}

}  // namespace
}  // namespace foretoken::gateway
