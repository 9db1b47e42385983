// Answers of a model that thinks, in chats and responses.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr TokenId kEnd = 100;
constexpr TokenId kOpen = 101;
constexpr TokenId kClose = 102;
constexpr TokenId kA = 'a' - '!';
constexpr TokenId kB = 'b' - '!';
constexpr TokenId kC = 'c' - '!';

// Opens the thinking if the request's variable says so.
constexpr char kThinks[] =
    "{% for message in messages %}"
    "{{ message.content.split('</think>')[-1] }}{% endfor %}"
    "{% if tools %}<tool_call>{% endif %}{% if open %}<think>\n{% endif %}"
    "{% if over %}</think>\n{% endif %}";
constexpr char kOpened[] = R"(, "chat_template_kwargs": {"open": true})";
constexpr char kTools[] =
    R"(, "tools": [{"type": "function", "function": {"name": "add"}}])";
constexpr char kCall[] =
    "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";

class ReasoningTest : public GatewayServiceTest {
 protected:
  ReasoningTest() {
    chat_ = ModelChat::Create(testing::MakeAsciiTokenizer(R"([
                    {"id": 100, "content": "</s>", "special": true},
                    {"id": 101, "content": "<think>", "special": false},
                    {"id": 102, "content": "</think>", "special": false}])"),
                              kThinks)
                .value();
  }
  std::shared_ptr<FakeExchange> Respond(const std::string& fields) {
    return Post("/v1/responses",
                absl::StrCat(R"({"input": "ab")", fields, "}"));
  }
  FakeCall& last() { return *generator_.calls.back(); }
  void FinishBy(FinishReason reason) {
    GenerationSummary summary;
    summary.finish = reason;
    last().listener->OnResult(summary);
    last().End(absl::OkStatus());
  }
  // Thinks "ab" with six tokens, tags and a line feed on either side included,
  // and answers "c".
  void WriteAnswer() {
    last().Write("<think>", {kOpen});
    last().Write("\na", {95, kA});
    last().Write("b\n</think>\n\nc", {kB, 95, kClose, 95, 95, kC});
    last().Write("", {kEnd});
    last().Finish(10);
  }
};

TEST_F(ReasoningTest, AChatHasItInAFieldOfItsOwn) {
  const auto exchange = Chat("");
  WriteAnswer();
  const Json body = exchange->Body();
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "ab");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "c");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens_details"],
            Json({{"reasoning_tokens", 6}}));
  EXPECT_EQ(body["usage"]["completion_tokens"], 10);
}

TEST_F(ReasoningTest, ChunksHaveEitherReasoningOrContent) {
  const auto exchange =
      Chat(R"(, "stream": true, "stream_options": {"include_usage": true},
              "foretoken": {"tokens": true})");
  WriteAnswer();
  std::string reasoning, content;
  size_t tokens = 0;
  Json usage;
  for (const Json& frame : exchange->Frames()) {
    if (!frame.is_object()) continue;
    if (!frame["usage"].is_null()) usage = frame["usage"];
    if (frame["choices"].empty()) continue;
    const Json delta = frame["choices"][0]["delta"];
    EXPECT_FALSE(delta.contains("reasoning_content") &&
                 delta.contains("content"));
    // Reasoning comes first.
    EXPECT_TRUE(content.empty() || !delta.contains("reasoning_content"));
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    if (frame.contains("foretoken") && frame["foretoken"].contains("tokens")) {
      tokens += frame["foretoken"]["tokens"].size();
    }
  }
  EXPECT_EQ(reasoning, "ab");
  EXPECT_EQ(content, "c");
  EXPECT_EQ(tokens, 10u);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 6);
}

TEST_F(ReasoningTest, ThePromptMayHaveOpenedIt) {
  const auto opened = Chat(kOpened);
  last().Write("ab</think>c", {});
  last().Finish();
  const Json message = opened->Body()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "ab");
  EXPECT_EQ(message["content"], "c");
  // What a user writes opens nothing.
  const auto faked =
      Post("/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "<think>\n"}]})");
  last().Write("ab</think>c", {});
  last().Finish();
  const Json text = faked->Body()["choices"][0]["message"];
  EXPECT_FALSE(text.contains("reasoning_content"));
  EXPECT_EQ(text["content"], "ab</think>c");
}

TEST_F(ReasoningTest, AChatMayBeCutOffInIt) {
  for (const bool stream : {false, true}) {
    const auto exchange =
        Chat(absl::StrCat(kOpened, stream ? R"(, "stream": true)" : ""));
    last().Write("ab</thi", {});
    FinishBy(FinishReason::kLength);
    EXPECT_THAT(exchange->response.body,
                HasSubstr("\"finish_reason\":\"length\""));
    if (stream) {
      EXPECT_THAT(exchange->response.body,
                  HasSubstr("\"reasoning_content\":\"</thi\""));
      continue;
    }
    const Json message = exchange->Body()["choices"][0]["message"];
    EXPECT_EQ(message["reasoning_content"], "ab</thi");
    EXPECT_EQ(message["content"], "");
  }
}

TEST_F(ReasoningTest, CallsAreReadBehindItAlone) {
  for (const bool stream : {false, true}) {
    const auto exchange =
        Chat(absl::StrCat(kTools, stream ? R"(, "stream": true)" : ""));
    last().Write(absl::StrCat("<think>", kCall, "</think>\n\n", kCall), {});
    last().Finish();
    EXPECT_THAT(exchange->response.body,
                HasSubstr("\"finish_reason\":\"tool_calls\""));
    if (stream) continue;
    const Json message = exchange->Body()["choices"][0]["message"];
    EXPECT_EQ(message["reasoning_content"], kCall);
    EXPECT_EQ(message["content"], nullptr);
    EXPECT_THAT(message["tool_calls"], SizeIs(1));
  }
  const auto open = Chat(absl::StrCat(kTools, kOpened));
  last().Write(kCall, {});
  last().Finish();
  EXPECT_EQ(open->Body()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(open->Body()["choices"][0]["message"]["reasoning_content"], kCall);
}

TEST_F(ReasoningTest, ItMayBeLeftInTheContentOrLeftOut) {
  for (const char* stream : {"false", "true"}) {
    const std::string streams = absl::StrCat(R"(, "stream": )", stream);
    for (const char* fields :
         {R"(, "separate_reasoning": false)", R"(, "reasoning_format": "none")",
          R"(, "include_reasoning": false)"}) {
      const auto exchange = Chat(absl::StrCat(fields, streams));
      WriteAnswer();
      EXPECT_THAT(exchange->response.body, Not(HasSubstr("reasoning_content")));
      if (stream == std::string("true")) continue;
      const Json body = exchange->Body();
      EXPECT_EQ(body["choices"][0]["message"]["content"],
                absl::string_view(fields).find("include") != std::string::npos
                    ? "c"
                    : "<think>\nab\n</think>\n\nc");
      EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"],
                6);
    }
  }
}

TEST_F(ReasoningTest, TokensOfAllChoicesAreAddedUp) {
  const auto exchange = Chat(R"(, "n": 2)");
  for (const size_t i : {0, 1}) {
    call(i).Write("<think>a", {kOpen, kA});
    call(i).Write("</think>b", {kClose, kB});
    call(i).Finish(4);
  }
  EXPECT_EQ(exchange->Body()["usage"]["completion_tokens_details"],
            Json({{"reasoning_tokens", 6}}));
}

TEST_F(ReasoningTest, AConstrainedAnswerMayThinkFirst) {
  constexpr char kObject[] = R"(, "response_format": {"type": "json_object"})";
  Chat(absl::StrCat(kObject, kOpened));
  EXPECT_EQ(last().request.constraint.thinking,
            (Thinking{{"<think>", false}, {"</think>", false}, true}));
  last().Finish();
  Respond(R"(, "text": {"format": {"type": "json_object"}})");
  EXPECT_EQ(last().request.constraint.thinking,
            (Thinking{{"<think>", false}, {"</think>", false}, false}));
  last().Finish();
  Chat(absl::StrCat(kTools, R"(, "tool_choice": "required")"));
  EXPECT_FALSE(last().request.constraint.thinking.empty());
  last().Finish();
  UseTemplate("{{ messages[0].content }}");
  Make();
  Chat(kObject);
  EXPECT_TRUE(last().request.constraint.thinking.empty());
}

TEST_F(ReasoningTest, WhereAConstraintAllowsNoneItsTokensAreZero) {
  const auto exchange = Chat(R"(, "response_format": {"type": "json_object"},
              "chat_template_kwargs": {"over": true})");
  EXPECT_TRUE(last().request.constraint.thinking.empty());
  last().Write("{}", {});
  last().Finish();
  const Json body = exchange->Body();
  EXPECT_EQ(body["choices"][0]["message"]["content"], "{}");
  EXPECT_EQ(body["usage"]["completion_tokens_details"],
            Json({{"reasoning_tokens", 0}}));
}

TEST_F(ReasoningTest, ModelsThatDoNotThinkAnswerAsTheyAlwaysDid) {
  UseTemplate("{{ messages[0].content }}");
  Make();
  const auto exchange = Chat(R"(, "separate_reasoning": true)");
  WriteAnswer();
  const Json body = exchange->Body();
  EXPECT_EQ(body["choices"][0]["message"]["content"],
            "<think>\nab\n</think>\n\nc");
  EXPECT_FALSE(body["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_FALSE(body["usage"].contains("completion_tokens_details"));
}

TEST_F(ReasoningTest, AResponseHasAnItemForIt) {
  const auto exchange = Respond("");
  WriteAnswer();
  Json body = exchange->Body();
  ASSERT_THAT(body["output"], SizeIs(2));
  EXPECT_THAT(body["output"][0]["id"].get<std::string>(),
              ::testing::StartsWith("rs_"));
  body["output"][0].erase("id");
  EXPECT_EQ(body["output"][0], Json::parse(R"({
      "type": "reasoning", "status": "completed", "summary": [],
      "content": [{"type": "reasoning_text", "text": "ab"}]})"));
  EXPECT_EQ(body["output"][1]["type"], "message");
  EXPECT_EQ(body["output"][1]["content"][0]["text"], "c");
  EXPECT_EQ(body["usage"]["output_tokens_details"],
            Json({{"reasoning_tokens", 6}}));
}

TEST_F(ReasoningTest, AResponseStreamsItAsEvents) {
  const auto exchange = Respond(R"(, "stream": true)");
  WriteAnswer();
  const std::vector<Json> events = exchange->Events();
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  ASSERT_THAT(
      types,
      ElementsAre("response.created", "response.in_progress",
                  "response.output_item.added", "response.content_part.added",
                  "response.reasoning_text.delta",
                  "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.completed"));
  const Json& item = events[2]["item"];
  EXPECT_EQ(item["type"], "reasoning");
  EXPECT_EQ(item["status"], "in_progress");
  EXPECT_EQ(item["summary"], Json::array());
  EXPECT_EQ(item["content"], Json::array());
  for (const size_t i : {3, 4, 5, 6, 7}) {
    EXPECT_EQ(events[i]["item_id"], item["id"]) << i;
    EXPECT_EQ(events[i]["output_index"], 0) << i;
    EXPECT_EQ(events[i]["content_index"], 0) << i;
    EXPECT_FALSE(events[i].contains("logprobs")) << i;
  }
  EXPECT_EQ(events[3]["part"],
            Json({{"type", "reasoning_text"}, {"text", ""}}));
  EXPECT_EQ(events[4]["delta"], "a");
  EXPECT_EQ(events[5]["delta"], "b");
  EXPECT_EQ(events[6]["text"], "ab");
  EXPECT_EQ(events[7]["part"],
            Json({{"type", "reasoning_text"}, {"text", "ab"}}));
  EXPECT_EQ(events[11]["output_index"], 1);
  EXPECT_EQ(events[15]["response"]["output"][0], events[8]["item"]);
  EXPECT_EQ(events[15]["response"]["output"][1], events[14]["item"]);
}

TEST_F(ReasoningTest, AResponseMayBeCutOffInIt) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange =
        Respond(absl::StrCat(kOpened, R"(, "stream": )", stream));
    last().Write("ab", {});
    FinishBy(FinishReason::kLength);
    const Json response = stream == std::string("true")
                              ? exchange->Events().back()["response"]
                              : exchange->Body();
    EXPECT_EQ(response["status"], "incomplete");
    ASSERT_THAT(response["output"], SizeIs(1));
    EXPECT_EQ(response["output"][0]["type"], "reasoning");
    EXPECT_EQ(response["output"][0]["status"], "incomplete");
  }
}

TEST_F(ReasoningTest, LogprobsOfAMessageBeginBehindIt) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange = Respond(absl::StrCat(
        R"(, "include": ["message.output_text.logprobs"], "stream": )",
        stream));
    const auto write = [&](const std::string& text,
                           const std::vector<TokenId>& tokens) {
      GenerationDelta delta;
      delta.text = text;
      delta.token_ids = tokens;
      for (const TokenId token : tokens) {
        delta.drafters.push_back(DrafterId::kTarget);
        delta.logprobs.push_back({token, -0.5f, {}});
      }
      last().listener->OnDelta(delta);
    };
    write("<think>a", {kOpen, kA});
    write("b</think>", {kB, kClose});
    write("c", {kC});
    write("a", {kA});
    write("", {kEnd});
    last().Finish(7);
    const Json response = stream == std::string("true")
                              ? exchange->Events().back()["response"]
                              : exchange->Body();
    std::vector<std::string> tokens;
    for (const Json& entry : response["output"][1]["content"][0]["logprobs"]) {
      tokens.push_back(entry["token"]);
    }
    EXPECT_THAT(tokens, ElementsAre("c", "a", "</s>"));
  }
  // A chat has those of all its tokens.
  const auto chat = Chat(R"(, "logprobs": true)");
  GenerationDelta delta;
  delta.text = "<think>a</think>b";
  delta.token_ids = {kOpen, kA, kClose, kB};
  delta.drafters.assign(4, DrafterId::kTarget);
  for (const TokenId token : delta.token_ids) {
    delta.logprobs.push_back({token, -0.5f, {}});
  }
  last().listener->OnDelta(delta);
  last().Finish(4);
  EXPECT_THAT(chat->Body()["choices"][0]["logprobs"]["content"], SizeIs(4));
}

}  // namespace
}  // namespace foretoken::gateway
