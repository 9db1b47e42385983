#include "services/gateway/core/gateway_service.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/json.h"
#include "common/base/retry_after.h"
#include "common/text/chat/arguments_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/generation_fields.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(GatewayServiceTest, ACompletionIsOneBody) {
  const auto exchange = Complete(R"(, "max_tokens": 9, "seed": 3)");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_EQ(call().request.text, "ab");
  EXPECT_EQ(call().request.max_tokens, 9);
  EXPECT_EQ(call().request.sampling.seed, 3u);
  EXPECT_EQ(call().request.caller.name, "192.0.2.1");
  call().Write("x");
  call().Write("y\"");
  EXPECT_EQ(exchange->ends, 0);
  call().Finish();
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_EQ(exchange->response.status, 200);
  const Json body = exchange->Body();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["created"], 1700000000);
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["choices"][0]["text"], "xy\"");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(body["usage"],
            Json::parse(R"({"prompt_tokens": 3, "completion_tokens": 2,
                            "total_tokens": 5,
                            "prompt_tokens_details": {"cached_tokens": 1}})"));
  EXPECT_EQ(body["foretoken"]["mode"], "auto");
  EXPECT_EQ(body["foretoken"]["accept_length"], 2.0);
  EXPECT_EQ(body["foretoken"]["seed"], 5);
  EXPECT_EQ(body["foretoken"]["by_drafter"],
            Json::parse(R"([{"drafter": "prompt_lookup", "drafted_tokens": 4,
                             "accepted_tokens": 1,
                             "shortened_drafts": 0}])"));
  EXPECT_THAT(observer_.statuses, ElementsAre(200));
}

TEST_F(GatewayServiceTest, ACompletionWithoutALimitGoesOnToTheContextsEnd) {
  generator_.info.max_positions = 50;
  const std::vector<TokenId> prompt = chat_->tokenizer().EncodePrompt("ab");
  for (const char* limit : {"max_tokens", "n_predict", "num_predict"}) {
    Complete(absl::StrCat(R"(, ")", limit, R"(": -1)"));
    const GenerationRequest& request = generator_.calls.back()->request;
    EXPECT_EQ(request.prompt, prompt) << limit;
    EXPECT_FALSE(request.text.has_value());
    EXPECT_EQ(request.max_tokens, 50 - static_cast<int64_t>(prompt.size()));
  }
  Post("/v1/completions", R"({"prompt": [1, 2, 3], "max_tokens": -1})");
  EXPECT_EQ(generator_.calls.back()->request.max_tokens, 47);
  const auto several =
      Post("/v1/completions", R"({"prompt": ["a", "b"], "n_predict": -1})");
  EXPECT_EQ(several->response.status, 400);
  EXPECT_EQ(several->Body()["error"]["param"], "max_tokens");
  generator_.info.max_positions = 1;
  const auto full = Complete(R"(, "max_tokens": -1)");
  EXPECT_EQ(full->Body()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(full->Body()["error"]["param"], "prompt");
}

TEST_F(GatewayServiceTest, AChatIsAStreamOfChunks) {
  const auto exchange =
      Chat(R"(, "stream": true, "stream_options": {"include_usage": true},
              "foretoken": {"tokens": true})");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_THAT(call().request.prompt, ElementsAre(0, 2, 3));
  EXPECT_EQ(call().request.max_tokens, 97);  // what the context has left
  EXPECT_EQ(exchange->streams, 0);
  EXPECT_TRUE(call().Write("x", {25}));
  EXPECT_EQ(exchange->streams, 1);
  EXPECT_THAT(exchange->response.content_type, HasSubstr("text/event-stream"));
  call().Write("", {1});  // an end token writes nothing
  call().Finish();
  EXPECT_EQ(exchange->ends, 1);
  const std::vector<Json> frames = exchange->Frames();
  ASSERT_THAT(frames, SizeIs(6));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(frames[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(frames[i]["id"], frames[0]["id"]);
  }
  EXPECT_EQ(frames[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(frames[0]["usage"], nullptr);
  EXPECT_EQ(frames[1]["choices"][0]["delta"], Json({{"content", "x"}}));
  EXPECT_EQ(frames[1]["foretoken"]["tokens"],
            Json::parse(R"([{"id": 25, "text": "x", "drafter": "target"}])"));
  EXPECT_EQ(frames[2]["foretoken"]["tokens"][0]["text"], "");
  EXPECT_EQ(frames[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(frames[3]["foretoken"]["rounds"], 1);
  EXPECT_THAT(frames[4]["choices"], SizeIs(0));
  EXPECT_EQ(frames[4]["usage"]["total_tokens"], 5);
  EXPECT_EQ(frames[5], "[DONE]");
}

TEST_F(GatewayServiceTest, AConstraintReachesTheGenerator) {
  const auto exchange =
      Chat(R"(, "response_format": {"type": "json_schema", "json_schema":
              {"name": "n", "schema": {"z": 1, "a": 2}}})");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_EQ(
      call().request.constraint,
      (Constraint{Constraint::Kind::kJsonSchema, R"({"z": 1, "a": 2})", {}}));
  call().End(absl::InvalidArgumentError("constraint: /z: not a schema"));
  EXPECT_EQ(exchange->response.status, 400);
  EXPECT_EQ(exchange->Body()["error"]["param"],
            "response_format.json_schema.schema");
}

TEST_F(GatewayServiceTest, AStreamOfCompletionsEndsWithItsReason) {
  const auto exchange = Complete(R"(, "stream": true)");
  call().Write("x");
  call().Write("");
  call().Finish();
  const std::vector<Json> frames = exchange->Frames();
  ASSERT_THAT(frames, SizeIs(3));
  EXPECT_EQ(frames[0]["choices"][0]["text"], "x");
  EXPECT_EQ(frames[0]["choices"][0]["finish_reason"], nullptr);
  EXPECT_FALSE(frames[0].contains("usage"));
  EXPECT_EQ(frames[1]["choices"][0]["text"], "");
  EXPECT_EQ(frames[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(frames[2], "[DONE]");
}

TEST_F(GatewayServiceTest, EveryChoiceIsARequestWithASeedOfItsOwn) {
  const auto exchange =
      Post("/v1/completions",
           R"({"prompt": ["a", "b"], "n": 2, "seed": 7, "echo": true})",
           {{"X-Request-Id", "mine"}});
  ASSERT_THAT(generator_.calls, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(call(i).request.text, i < 2 ? "a" : "b");
    EXPECT_EQ(call(i).request.sampling.seed,
              SeedOfChoice(7, static_cast<int64_t>(i % 2)));
    EXPECT_EQ(call(i).request.request_id, absl::StrCat("mine-", i));
  }
  EXPECT_EQ(exchange->Header("X-Request-Id"), "");
  for (const size_t i : {3, 1, 0, 2}) {
    call(i).Write(absl::StrCat(i));
    call(i).Finish();
  }
  EXPECT_EQ(exchange->Header("X-Request-Id"), "mine");
  const Json body = exchange->Body();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], absl::StrCat(i < 2 ? "a" : "b", i));
  }
  // A prompt counts once, its choices count all.
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(body["usage"]["completion_tokens"], 8);
  EXPECT_EQ(body["foretoken"]["rounds"], 4);
  EXPECT_EQ(body["foretoken"]["by_drafter"][0]["drafted_tokens"], 16);
  EXPECT_THAT(body["foretoken"]["choices"], SizeIs(4));
}

TEST_F(GatewayServiceTest, AFewChoicesAreUnderWayAtATime) {
  const auto exchange = Complete(R"(, "n": 100)");
  EXPECT_THAT(generator_.calls, SizeIs(GenerationExchange::kAtOnce));
  for (size_t i = 0; i < 100; ++i) {
    call(i).Write("x");
    call(i).Finish();
  }
  EXPECT_THAT(exchange->Body()["choices"], SizeIs(100));
}

TEST_F(GatewayServiceTest, LogprobsHaveEachEndpointsForm) {
  GenerationDelta delta;
  delta.text = "th";
  delta.token_ids = {31};
  delta.drafters = {DrafterId::kTarget};
  delta.logprobs = {{31, -0.5f, {{31, -0.5f}, {1, -1.5f}}}};
  const auto chat = Chat(R"(, "logprobs": true, "top_logprobs": 2)");
  call(0).listener->OnDelta(delta);
  call(0).Finish();
  EXPECT_EQ(chat->Body()["choices"][0]["logprobs"]["content"],
            Json::parse(R"([{"token": "th", "logprob": -0.5,
                "bytes": [116, 104], "top_logprobs": [
                  {"token": "th", "logprob": -0.5, "bytes": [116, 104]},
                  {"token": "</s>", "logprob": -1.5,
                   "bytes": [60, 47, 115, 62]}]}])"));
  const auto completion = Complete(R"(, "logprobs": 2)");
  call(1).listener->OnDelta(delta);
  call(1).listener->OnDelta(delta);
  call(1).Finish();
  EXPECT_EQ(completion->Body()["choices"][0]["logprobs"],
            Json::parse(R"({"tokens": ["th", "th"],
                "token_logprobs": [-0.5, -0.5],
                "top_logprobs": [{"th": -0.5, "</s>": -1.5},
                                 {"th": -0.5, "</s>": -1.5}],
                "text_offset": [0, 2]})"));
}

TEST_F(GatewayServiceTest, PartsOfCharactersAreSpelledByTheirBytes) {
  const auto exchange = Complete(R"(, "logprobs": 3)");
  GenerationDelta delta;
  delta.text = "éth";
  delta.token_ids = {29, 30, 31};
  delta.drafters.assign(3, DrafterId::kTarget);
  delta.logprobs = {{29, -0.5f, {{29, -0.5f}, {30, -1.5f}, {29, -2.5f}}},
                    {30, -0.5f, {}},
                    {31, -0.5f, {}}};
  call().listener->OnDelta(delta);
  call().Finish();
  // Keys of an object differ, and both tokens of é are at its place.
  EXPECT_THAT(
      exchange->response.body,
      HasSubstr(R"("top_logprobs":[{"bytes:\\xc3":-0.5,"bytes:\\xa9":-1.5},)"));
  const Json logprobs = exchange->Body()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"bytes:\\xc3", "bytes:\\xa9", "th"}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 0, 1}));
}

TEST_F(GatewayServiceTest, TimesOfManyChoicesAreThoseOfTheRequest) {
  // Two come after the others, so that no choice takes as long as all.
  constexpr size_t kChoices = GenerationExchange::kAtOnce + 2;
  const auto exchange = Complete(absl::StrCat(R"(, "n": )", kChoices));
  GenerationSummary summary;
  summary.completion_tokens = 11;
  summary.decoded_tokens = 10;
  summary.time_to_first_token = absl::Milliseconds(1);
  summary.decode_time = absl::Milliseconds(1);
  summary.total_time = absl::Milliseconds(2);
  now_ += absl::Seconds(1);
  for (size_t i = 0; i < kChoices; ++i) {
    call(i).Write("x");
    if (i + 2 >= kChoices) now_ += absl::Seconds(2);
    call(i).listener->OnResult(summary);
    call(i).End(absl::OkStatus());
  }
  const Json extension = exchange->Body()["foretoken"];
  EXPECT_EQ(extension["timings"]["ttft_ms"], 1000.0);
  EXPECT_EQ(extension["timings"]["total_ms"], 5000.0);
  EXPECT_EQ(extension["timings"]["decode_tokens_per_s"], kChoices * 10 / 4.0);
  EXPECT_EQ(extension["choices"][0]["timings"]["total_ms"], 2.0);
}

TEST_F(GatewayServiceTest, LongRequestIdsHaveRoomForTheChoice) {
  const std::string id(kMaxRequestIdBytes, 'a');
  const auto exchange = Post("/v1/completions", R"({"prompt": "a", "n": 11})",
                             {{"X-Request-Id", id}});
  EXPECT_EQ(call(3).request.request_id, id.substr(2) + "-3");
  EXPECT_EQ(call(10).request.request_id, id.substr(3) + "-10");
}

TEST_F(GatewayServiceTest, MoreChoicesThanACallerHasRequestsAreRefused) {
  Make({}, /*with_keys=*/true);
  const auto ask = [this](const std::string& n) {
    return Post("/v1/completions",
                absl::StrCat(R"({"prompt": ["a", "b"], "n": )", n, "}"),
                {{"Authorization", "Bearer right"}});
  };
  const auto refused = ask("2");
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_EQ(refused->Body()["error"]["param"], "n");
  EXPECT_THAT(generator_.calls, SizeIs(0));
  ask("1");
  EXPECT_THAT(generator_.calls, SizeIs(2));
}

TEST_F(GatewayServiceTest, TokensOfABodyAreOneArray) {
  const auto exchange = Chat(R"(, "foretoken": {"tokens": true})");
  call().Write("", {29});  // half a character
  call().Write("é", {30});
  call().Finish();
  EXPECT_EQ(exchange->Body()["choices"][0]["foretoken"]["tokens"],
            Json::parse(R"([{"id": 29, "text": "", "drafter": "target"},
                            {"id": 30, "text": "é", "drafter": "target"}])"));
}

TEST_F(GatewayServiceTest, RoundsAreInTheChunksOfTheirDeltas) {
  for (const bool chat : {true, false}) {
    const std::string fields =
        R"(, "stream": true, "foretoken": {"rounds": true})";
    const auto exchange = chat ? Chat(fields) : Complete(fields);
    FakeCall& writer = *generator_.calls.back();
    EXPECT_TRUE(writer.request.want_round_trees);
    GenerationDelta delta;
    RoundTree& round = delta.round_tree.emplace();
    round.nodes.Add(2, round.nodes.Add(31, -1, 0.5f), 0.25f);
    round.nodes.parts = {DrafterId::kPromptLookup, DrafterId::kFusedPrior};
    round.accepted = {true, false};
    round.committed = {31, 3};
    writer.listener->OnDelta(delta);
    const Json frame = exchange->Frames().back();
    EXPECT_EQ(frame["foretoken"], Json::parse(R"({"rounds": [{
                "nodes": [{"id": 31, "text": "th", "parent": -1,
                           "drafter": "prompt_lookup", "probability": 0.5,
                           "accepted": true},
                          {"id": 2, "text": "a", "parent": 0,
                           "drafter": "fused_prior", "probability": 0.25,
                           "accepted": false}],
                "committed": [31, 3]}]})"));
    writer.Finish();
  }
}

constexpr char kTools[] =
    R"(, "tools": [{"type": "function", "function": {"name": "add"}}])";

TEST_F(GatewayServiceTest, ToolCallsAreNoContent) {
  const auto exchange = Chat(kTools);
  call().Write("so ");
  call().Write("<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ");
  call().Write("1}}</tool_call>");
  call().Finish();
  const Json choice = exchange->Body()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "add");
  EXPECT_EQ(Json::parse(calls[0]["function"]["arguments"].get<std::string>()),
            Json({{"a", 1}}));
  EXPECT_FALSE(calls[0]["id"].get<std::string>().empty());
}

TEST_F(GatewayServiceTest, ToolCallsAreStreamedAsDeltas) {
  const auto exchange = Chat(absl::StrCat(kTools, R"(, "stream": true)"));
  for (const char* text : {"<tool_call>{\"name\": \"add\", \"argum",
                           "ents\": {\"a\"", ": 1}}", "</tool_call>"}) {
    call().Write(text);
  }
  call().Finish();
  std::string name, arguments;
  for (const Json& frame : exchange->Frames()) {
    if (!frame.is_object()) continue;
    const Json delta = frame["choices"][0]["delta"];
    EXPECT_EQ(delta.value("content", ""), "");
    for (const Json& part : delta.value("tool_calls", Json::array())) {
      EXPECT_EQ(part["index"], 0);
      name += part["function"].value("name", "");
      arguments += part["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(name, "add");
  EXPECT_EQ(Json::parse(arguments), Json({{"a", 1}}));
  EXPECT_THAT(exchange->response.body,
              HasSubstr("\"finish_reason\":\"tool_calls\""));
}

TEST_F(GatewayServiceTest, OneCallIsKeptOfAnAnswerThatMayHaveOne) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange =
        Chat(absl::StrCat(R"(, "tools": [{"function": {"name": "add"}},
                                         {"function": {"name": "sub"}}],
                             "parallel_tool_calls": false, "stream": )",
                          stream));
    FakeCall& writer = *generator_.calls.back();
    writer.Write(
        "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>");
    writer.Write(
        "<tool_call>{\"name\": \"sub\", \"arguments\": {}}</tool_call>");
    writer.Finish();
    EXPECT_THAT(exchange->response.body, HasSubstr("\"add\""));
    EXPECT_THAT(exchange->response.body, Not(HasSubstr("\"sub\"")));
    EXPECT_THAT(exchange->response.body,
                HasSubstr("\"finish_reason\":\"tool_calls\""));
  }
}

TEST_F(GatewayServiceTest, ACallThatIsDroppedCutsNothingOff) {
  const std::string begun =
      "<tool_call>{\"name\": \"sub\", \"arguments\": "
      "{\"a\": \"" +
      std::string(ArgumentsReader::kMaxWholeBytes, 'y');
  for (const bool one_call : {false, true}) {
    for (const bool first_is_whole : {false, true}) {
      const auto exchange = Chat(absl::StrCat(
          R"(, "tools": [{"function": {"name": "add"}},
                         {"function": {"name": "sub"}}],
             "parallel_tool_calls": )",
          one_call ? "false" : "true"));
      FakeCall& writer = *generator_.calls.back();
      if (first_is_whole) {
        writer.Write(
            "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>");
      }
      writer.Write(begun);
      writer.Finish();
      const Json choice = exchange->Body()["choices"][0];
      EXPECT_EQ(choice["finish_reason"],
                one_call && first_is_whole ? "tool_calls" : "length");
      EXPECT_THAT(choice["message"]["tool_calls"],
                  SizeIs(!one_call && first_is_whole ? 2 : 1));
    }
  }
}

// The model was talked into it, or writes from memory.
TEST_F(GatewayServiceTest, CallsOfOtherToolsAndBrokenOnesAreContent) {
  for (const std::string text :
       {R"(<tool_call>{"name": "sub", "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "<script>x</script>", "arguments": {}})",
        R"(<tool_call>{"name": "add", "arguments": {"a": }}</tool_call>)",
        R"(<tool_call>{"name": "add", "arguments": {"a": 1)"}) {
    for (const bool stream : {false, true}) {
      const auto exchange =
          Chat(absl::StrCat(kTools, stream ? R"(, "stream": true)" : ""));
      FakeCall& writer = *generator_.calls.back();
      writer.Write(text);
      writer.Finish();
      EXPECT_THAT(exchange->response.body,
                  HasSubstr("\"finish_reason\":\"stop\""));
      EXPECT_THAT(exchange->response.body, Not(HasSubstr("tool_calls")));
      if (stream) continue;
      EXPECT_EQ(exchange->Body()["choices"][0]["message"]["content"], text);
    }
  }
}

TEST_F(GatewayServiceTest, LongArgumentsThatAreCutOffEndInLength) {
  const std::string text =
      absl::StrCat(R"(<tool_call>{"name": "add", "arguments": {"a": ")",
                   std::string(5000, 'b'));
  for (const bool stream : {false, true}) {
    const auto exchange =
        Chat(absl::StrCat(kTools, stream ? R"(, "stream": true)" : ""));
    FakeCall& writer = *generator_.calls.back();
    writer.Write(text);
    writer.Finish();
    EXPECT_THAT(exchange->response.body, HasSubstr("\"tool_calls\":["));
    EXPECT_THAT(exchange->response.body,
                HasSubstr("\"finish_reason\":\"length\""));
  }
}

TEST_F(GatewayServiceTest, CallsThatAreRequiredAreAConstraint) {
  const auto exchange =
      Chat(absl::StrCat(kTools, R"(, "tool_choice": "required")"));
  const Constraint& constraint = call().request.constraint;
  EXPECT_EQ(constraint.kind, Constraint::Kind::kToolCalls);
  EXPECT_THAT(constraint.source, HasSubstr(R"("name": "add")"));
  call().End(absl::InvalidArgumentError("constraint: tool add: no good"));
  EXPECT_EQ(exchange->response.status, 400);
  EXPECT_EQ(exchange->Body()["error"]["param"], "tools");

  UseTemplate("{% for message in messages %}{{ message.content }}{% endfor %}");
  Make();
  const auto refused =
      Chat(absl::StrCat(kTools, R"(, "tool_choice": "required")"));
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_EQ(refused->Body()["error"]["param"], "tool_choice");
}

TEST_F(GatewayServiceTest, AFencedBlockIsACallUnlessCallsAreConstrained) {
  const std::string text =
      "```json\n{\"name\": \"add\", \"arguments\": {}}\n```";
  const auto exchange = Chat(kTools);
  generator_.calls.back()->Write(text);
  generator_.calls.back()->Finish();
  const Json called = exchange->Body()["choices"][0];
  EXPECT_EQ(called["finish_reason"], "tool_calls");
  EXPECT_EQ(called["message"]["content"], nullptr);
  EXPECT_EQ(called["message"]["tool_calls"][0]["function"]["name"], "add");

  const auto strict =
      Chat(R"(, "tools": [{"function": {"name": "add", "strict": true}}])");
  generator_.calls.back()->Write(text);
  generator_.calls.back()->Finish();
  const Json content = strict->Body()["choices"][0];
  EXPECT_EQ(content["finish_reason"], "stop");
  EXPECT_EQ(content["message"]["content"], text);
}

TEST_F(GatewayServiceTest, WithoutToolsACallIsContent) {
  const auto exchange =
      Chat(absl::StrCat(kTools, R"(, "tool_choice": "none")"));
  call().Write("<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>");
  call().Finish();
  const Json choice = exchange->Body()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_THAT(choice["message"]["content"].get<std::string>(),
              HasSubstr("<tool_call>"));
}

TEST_F(GatewayServiceTest, ARefusalHasItsOwnStatusEvenOfAStream) {
  generator_.refusal = WithRetryAfter(absl::ResourceExhaustedError("full"),
                                      absl::Milliseconds(2500));
  const auto exchange = Chat(R"(, "stream": true)");
  EXPECT_EQ(exchange->streams, 0);
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_EQ(exchange->response.status, 429);
  EXPECT_EQ(exchange->Header("Retry-After"), "3");
  EXPECT_EQ(exchange->Header("Retry-After-Ms"), "2500");
  EXPECT_EQ(exchange->Body()["error"]["type"], "rate_limit_error");
  EXPECT_THAT(observer_.statuses, ElementsAre(429));
}

TEST_F(GatewayServiceTest, AStreamThatBreaksEndsWithAnError) {
  const auto exchange = Chat(R"(, "stream": true, "n": 2)");
  call(0).Write("x");
  call(0).End(absl::AbortedError("lost"));
  EXPECT_EQ(call(1).cancelled, 1);
  EXPECT_EQ(exchange->ends, 1);
  const std::vector<Json> frames = exchange->Frames();
  ASSERT_THAT(frames, SizeIs(4));
  EXPECT_EQ(frames[2]["error"]["message"], "lost");
  // What the other choice still says is not sent.
  call(1).Write("y");
  call(1).End(absl::CancelledError());
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_THAT(exchange->Frames(), SizeIs(4));
}

TEST_F(GatewayServiceTest, AClientThatGoesAwayCancelsEverything) {
  const auto exchange = Chat(R"(, "stream": true, "n": 2)");
  call(0).Write("x");
  exchange->observer.lock()->OnGone();
  EXPECT_EQ(call(0).cancelled, 1);
  EXPECT_EQ(call(1).cancelled, 1);
  call(0).End(absl::CancelledError());
  call(1).End(absl::CancelledError());
  EXPECT_THAT(observer_.statuses, ElementsAre(499));
  EXPECT_EQ(exchange->ends, 0);
  EXPECT_TRUE(exchange->observer.expired());  // nothing keeps the exchange
}

TEST_F(GatewayServiceTest, AClientThatIsGoneAlreadyStartsNothing) {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = R"({"prompt": "ab", "n": 32})";
  auto exchange = std::make_shared<FakeExchange>();
  exchange->left = true;
  Send(std::move(request), exchange);
  EXPECT_THAT(generator_.calls, SizeIs(0));
  EXPECT_THAT(observer_.statuses, ElementsAre(499));
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(GatewayServiceTest, ABodyThatWaitedIsNotReadForAClientThatLeft) {
  awaits_bodies_ = false;
  GatewayOptions options;
  options.workers = 1;
  Make(options);
  absl::Notification begun, may_go_on;
  int reads = 0;
  generator_.on_info = [&] {
    if (++reads > 1) return;
    begun.Notify();
    may_go_on.WaitForNotification();
  };
  const std::string body =
      absl::StrCat(R"({"prompt": ")", std::string(20000, 'a'), "\"}");
  Post("/v1/completions", body);
  begun.WaitForNotification();
  const auto waits = Post("/v1/completions", body);
  waits->left = true;
  may_go_on.Notify();
  service_.reset();  // waits for the work
  EXPECT_EQ(reads, 1);
  EXPECT_THAT(generator_.calls, SizeIs(1));
  EXPECT_THAT(observer_.statuses, ElementsAre(499));
}

// A template of a million steps and little memory.
std::string LongTemplate() {
  std::string source = "{% for i in range(1000) %}";
  for (int i = 0; i < 300; ++i) source += "{% set x = 1 + 1 %}";
  return source + "{% endfor %}{{ messages[0].content }}";
}

TEST_F(GatewayServiceTest, ATemplateEndsAtItsTime) {
  UseTemplate(LongTemplate());
  Make();
  tick_ = absl::Milliseconds(100);
  const auto exchange = Chat("");
  // No status that makes clients repeat what takes so long.
  EXPECT_EQ(exchange->response.status, 400);
  EXPECT_THAT(exchange->response.body,
              HasSubstr("the chat template took more than 2s"));
  EXPECT_THAT(generator_.calls, SizeIs(0));
  EXPECT_EQ(memory_.used(), 0);
  tick_ = absl::ZeroDuration();
  Chat("");
  EXPECT_THAT(generator_.calls, SizeIs(1));
}

TEST_F(GatewayServiceTest, ATemplateEndsWithItsClientAndWithTheServer) {
  awaits_bodies_ = false;
  UseTemplate(LongTemplate());
  Make();
  for (const bool client_leaves : {true, false}) {
    observer_.statuses.clear();
    absl::Notification begun, may_go_on;
    generator_.on_info = [&] {
      begun.Notify();
      may_go_on.WaitForNotification();
    };
    const auto exchange = Chat("");
    begun.WaitForNotification();  // before the template begins
    exchange->left = client_leaves;
    if (!client_leaves) service_->StopTemplates();
    may_go_on.Notify();
    service_->AwaitBodies();
    EXPECT_THAT(observer_.statuses, ElementsAre(client_leaves ? 499 : 503));
    EXPECT_THAT(generator_.calls, SizeIs(0));
  }
}

TEST_F(GatewayServiceTest, TemplatesDoNotHoldUpTheThreadThatTakesRequests) {
  awaits_bodies_ = false;
  GatewayOptions options;
  options.workers = 1;  // a second one could notify `begun` again
  Make(options);
  absl::Notification begun, may_go_on;
  const std::thread::id here = std::this_thread::get_id();
  generator_.on_info = [&] {
    if (std::this_thread::get_id() == here) return;
    if (!begun.HasBeenNotified()) begun.Notify();
    may_go_on.WaitForNotification();
  };
  std::vector<std::shared_ptr<FakeExchange>> chats;
  for (int i = 0; i < 4; ++i) chats.push_back(Chat(""));
  begun.WaitForNotification();
  EXPECT_EQ(Get("/health")->response.status, 200);
  may_go_on.Notify();
  service_->AwaitBodies();
  EXPECT_THAT(generator_.calls, SizeIs(4));
}

TEST_F(GatewayServiceTest, WaitingForATurnCountsToTheTimeLimit) {
  awaits_bodies_ = false;
  GatewayOptions options;
  options.workers = 1;
  options.max_request_time = absl::Minutes(1);
  Make(options);
  absl::Notification begun, may_go_on;
  generator_.on_info = [&] {
    if (begun.HasBeenNotified()) return;
    begun.Notify();
    may_go_on.WaitForNotification();
  };
  const absl::Time arrived = now_;
  Chat("");
  begun.WaitForNotification();
  const auto second = Chat("");
  now_ += absl::Minutes(1);
  may_go_on.Notify();
  service_->AwaitBodies();
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_EQ(call().request.deadline, arrived + absl::Minutes(1));
  EXPECT_EQ(second->response.status, 408);
}

TEST_F(GatewayServiceTest, ManyVariablesOfATemplateAreRefused) {
  const auto with = [](int variables) {
    std::string fields = R"(, "chat_template_kwargs": {)";
    for (int i = 0; i < variables; ++i) {
      absl::StrAppend(&fields, i == 0 ? "" : ",", "\"v", i, "\":1");
    }
    return fields + "}";
  };
  Chat(with(256));
  EXPECT_THAT(generator_.calls, SizeIs(1));
  const auto refused = Chat(with(40'000));
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_EQ(refused->Body()["error"]["param"], "chat_template_kwargs");
  EXPECT_THAT(refused->response.body, HasSubstr("at most 256"));
}

TEST_F(GatewayServiceTest, ABodyOfMoreValuesThanTheLimitIsRefused) {
  std::string body = R"({"prompt": [{})";
  for (int i = 0; i < 200'000; ++i) body += ",{}";
  const auto refused = Post("/v1/completions", body + "]}");
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_THAT(refused->response.body, HasSubstr("more than 100000 values"));
  // A long prompt of token ids is no such body.
  std::string tokens = R"({"tokens": [97)";
  for (int i = 0; i < 150'000; ++i) tokens += ",98";
  EXPECT_THAT(Post("/detokenize", tokens + "]}")->response.body,
              Not(HasSubstr("values")));
}

TEST_F(GatewayServiceTest, AChatIsChargedForItsEncoding) {
  const auto tokenize = [this](size_t bytes) {
    return Post("/tokenize",
                absl::StrCat(R"({"messages": [{"role": "user", "content": ")",
                             std::string(bytes, 'a'), R"("}]})"));
  };
  EXPECT_EQ(tokenize(5000)->response.status, 200);
  // Encoding takes some seventy times the text, of which the budget's million
  // bytes have no room.
  const auto refused = tokenize(15000);
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_THAT(refused->response.body, HasSubstr("bytes"));
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(GatewayServiceTest, BodiesAreChargedToKnownCallers) {
  Make();
  HttpRequest head;
  head.method = "POST";
  head.path = "/v1/completions";
  head.peer = "192.0.2.1";
  EXPECT_EQ(service_->BodyOwner(head), "192.0.2.1");
  Make({}, /*with_keys=*/true);
  EXPECT_EQ(service_->BodyOwner(head), std::nullopt);
  head.headers = {{"Authorization", "Bearer right"}};
  EXPECT_EQ(service_->BodyOwner(head), "alice");
}

TEST_F(GatewayServiceTest, PagesMayReadWhyTheServerRefused) {
  GatewayOptions options;
  options.cors_origins = {"https://a.example"};
  Make(options);
  const auto allowed = [this](const std::string& origin) {
    HttpRequest head;
    head.headers = {{"Origin", origin}};
    for (const auto& [name, value] : service_->HeadersOfRefusal(head)) {
      if (name == "Access-Control-Allow-Origin") return value;
    }
    return std::string();
  };
  EXPECT_EQ(allowed("https://a.example"), "https://a.example");
  EXPECT_EQ(allowed("https://b.example"), "");
}

TEST_F(GatewayServiceTest, ASlowClientPausesItsOwnChoices) {
  const auto exchange = Chat(R"(, "stream": true)");
  EXPECT_TRUE(call().Write("x"));
  exchange->room = false;
  EXPECT_FALSE(call().Write("y"));
  EXPECT_EQ(call().resumed, 0);
  EXPECT_EQ(observer_.pauses, 1);
  exchange->room = true;
  exchange->observer.lock()->OnRoom();
  EXPECT_EQ(call().resumed, 1);
  call().Finish();
  EXPECT_EQ(exchange->Frames().back(), "[DONE]");
}

TEST_F(GatewayServiceTest, AnAnswerThatCannotBeHeldIsRefused) {
  // A million bytes have no room for 128 choices with logprobs; their stream
  // takes little.
  const std::string fields = R"(, "n": 128, "max_tokens": 90, "logprobs": 20)";
  EXPECT_EQ(Complete(fields)->response.status, 400);
  EXPECT_THAT(generator_.calls, SizeIs(0));
  const auto exchange = Complete(fields + R"(, "stream": true)");
  EXPECT_FALSE(generator_.calls.empty());
  EXPECT_GT(memory_.used(), 0);
  exchange->observer.lock()->OnGone();
  for (const auto& each : generator_.calls) each->End(absl::CancelledError());
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(GatewayServiceTest, AnAnswerCountsUntilASlowClientHasReadIt) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange = Complete(absl::StrCat(
        R"(, "max_tokens": 90, "logprobs": 5, "stream": )", stream));
    exchange->slow = true;
    const int64_t running = memory_.used();
    call().Write(std::string(9000, 'a'));
    call().Finish();
    EXPECT_EQ(exchange->ends, 1);
    // The request's part of it is free, that of the body is not.
    if (stream == std::string("true")) {
      EXPECT_GT(memory_.used(), 0);
      EXPECT_LE(memory_.used(), running);
    } else {
      EXPECT_GE(memory_.used(),
                2 * static_cast<int64_t>(exchange->response.body.size()));
      EXPECT_LT(memory_.used(), running);
    }
    exchange->held.Release();
    EXPECT_EQ(memory_.used(), 0);
    generator_.calls.clear();
  }
}

TEST_F(GatewayServiceTest, TheModelHasToBeTheServedOne) {
  const auto exchange = Complete(R"(, "model": "gpt-4")");
  EXPECT_EQ(exchange->response.status, 404);
  EXPECT_EQ(exchange->Body()["error"]["code"], "model_not_found");
  EXPECT_THAT(generator_.calls, SizeIs(0));
  Complete(R"(, "model": "demo")");
  EXPECT_THAT(generator_.calls, SizeIs(1));
}

TEST_F(GatewayServiceTest, MessagesBeyondTheContextAreRefused) {
  const auto too_long = Chat(R"(, "max_tokens": 98)");
  EXPECT_EQ(too_long->response.status, 400);
  EXPECT_EQ(too_long->Body()["error"]["param"], "max_tokens");
  EXPECT_EQ(too_long->Body()["error"]["code"], "context_length_exceeded");
  Chat(R"(, "max_tokens": 97)");
  EXPECT_THAT(generator_.calls, SizeIs(1));
  const auto no_role =
      Post("/v1/chat/completions",
           R"({"messages": [{"role": "function", "content": "a"}]})");
  EXPECT_EQ(no_role->response.status, 400);
  EXPECT_THAT(no_role->Body()["error"]["message"].get<std::string>(),
              HasSubstr("no such role"));
}

TEST_F(GatewayServiceTest, ModelsAreListed) {
  const Json list = Get("/v1/models")->Body();
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "demo");
  EXPECT_EQ(list["data"][0]["max_model_len"], 100);
  EXPECT_EQ(list["data"][0]["foretoken"]["modes"], Json({"off", "auto"}));
  EXPECT_EQ(list["data"][0]["foretoken"]["default_mode"], "auto");
  EXPECT_EQ(Get("/v1/models/demo")->Body(), list["data"][0]);
  // As clients write names with spaces.
  EXPECT_EQ(Get("/v1/models/d%65mo")->Body(), list["data"][0]);
  EXPECT_EQ(Get("/v1/models/demo%")->response.status, 404);
  EXPECT_EQ(Get("/v1/models/other")->response.status, 404);
}

TEST_F(GatewayServiceTest, TextsAreEncodedAndDecoded) {
  EXPECT_EQ(Post("/tokenize", R"({"prompt": "ab"})")->Body(),
            Json::parse(R"({"count": 3, "max_model_len": 100,
                            "tokens": [0, 97, 98]})"));
  EXPECT_EQ(
      Post("/tokenize", R"({"messages": [{"role": "user", "content": "a"}]})")
          ->Body()["tokens"],
      Json({0, 2}));
  EXPECT_EQ(Post("/detokenize", R"({"tokens": [97, 98]})")->Body(),
            Json::parse(R"({"prompt": "ab"})"));
}

TEST_F(GatewayServiceTest, HealthFollowsTheWriterAndTheDrain) {
  EXPECT_EQ(Get("/health")->response.status, 200);
  generator_.ready = false;
  EXPECT_EQ(Get("/health")->response.status, 503);
  EXPECT_EQ(Complete("")->response.status, 503);
  generator_.ready = true;
  service_->BeginDrain();
  EXPECT_EQ(Get("/health")->response.status, 503);
  const auto refused = Complete("");
  EXPECT_EQ(refused->response.status, 503);
  EXPECT_EQ(refused->Header("Retry-After"), "1");
}

// The attack: a server whose model has another tokenizer. Its texts would be
// wrong, and nothing would say so.
TEST_F(GatewayServiceTest, AModelWithAnotherTokenizerIsNotServed) {
  generator_.info.tokenizer_fingerprint = std::string(32, 'x');
  for (const auto& exchange :
       {Get("/health"), Get("/v1/models"), Complete(""), Chat(""),
        Post("/tokenize", R"({"prompt": "a"})"),
        Post("/v1/responses", R"({"input": "a"})")}) {
    EXPECT_EQ(exchange->response.status, 503);
    EXPECT_THAT(exchange->response.body,
                HasSubstr("another tokenizer than the model demo"));
  }
  EXPECT_TRUE(generator_.calls.empty());
  generator_.info.tokenizer_fingerprint =
      chat_->tokenizer().fingerprint_bytes();
  EXPECT_EQ(Get("/health")->response.status, 200);
  EXPECT_EQ(Get("/v1/models")->response.status, 200);
  // A server that does not know its own.
  generator_.info.tokenizer_fingerprint = "";
  EXPECT_EQ(Get("/health")->response.status, 200);
}

TEST_F(GatewayServiceTest, PathsMethodsAndTypesAreChecked) {
  EXPECT_EQ(Get("/v1/other")->response.status, 404);
  EXPECT_EQ(Get("/v1/completions")->response.status, 405);
  EXPECT_EQ(Get("/v1/completions")->Header("Allow"), "POST");
  HttpRequest form;
  form.method = "POST";
  form.path = "/v1/completions";
  form.body = "{}";
  EXPECT_EQ(Send(std::move(form))->response.status, 415);
  EXPECT_EQ(Post("/v1/completions", "{")->response.status, 400);
  const auto page = Get("/");
  EXPECT_EQ(page->response.body, "<p>");
  EXPECT_EQ(page->Header("Content-Security-Policy"), "default-src 'none'");
}

TEST_F(GatewayServiceTest, AKeyMayComeInXApiKey) {
  Make({}, /*with_keys=*/true);
  const auto status = [&](HttpHeaders headers) {
    return Get("/v1/models", std::move(headers))->response.status;
  };
  EXPECT_EQ(status({{"X-Api-Key", "right"}}), 200);
  EXPECT_EQ(status({{"x-api-key", "wrong"}}), 401);
  EXPECT_EQ(status({{"x-api-key", ""}}), 401);
  // Both, if they agree.
  EXPECT_EQ(status({{"x-api-key", "right"}, {"Authorization", "Bearer right"}}),
            200);
  EXPECT_EQ(status({{"x-api-key", "wrong"}, {"Authorization", "Bearer right"}}),
            401);
  EXPECT_EQ(status({{"x-api-key", "right"}, {"Authorization", "Bearer wrong"}}),
            401);
  EXPECT_EQ(status({{"x-api-key", "right"}, {"x-api-key", "right"}}), 401);
  HttpRequest head;
  head.peer = "192.0.2.1";
  head.headers = {{"x-api-key", "right"}};
  EXPECT_EQ(service_->BodyOwner(head), "alice");
  head.headers.emplace_back("x-api-key", "wrong");
  EXPECT_EQ(service_->BodyOwner(head), std::nullopt);
}

TEST_F(GatewayServiceTest, WithKeysEveryCallerNeedsOne) {
  Make({}, /*with_keys=*/true);
  const auto refused = Complete("");
  EXPECT_EQ(refused->response.status, 401);
  EXPECT_EQ(refused->Body()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(refused->Header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(Get("/v1/models")->response.status, 401);
  EXPECT_EQ(Get("/health")->response.status, 200);
  EXPECT_EQ(Get("/")->response.status, 200);
  Post("/v1/completions", R"({"prompt": "a"})",
       {{"authorization", "Bearer right"}});
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_EQ(call().request.caller.name, "alice");
}

TEST_F(GatewayServiceTest, OtherSitesMayCallOnlyIfConfigured) {
  const auto preflight = [this] {
    HttpRequest request;
    request.method = "OPTIONS";
    request.path = "/v1/models";
    request.headers = {{"Origin", "https://a.example"}};
    return Send(std::move(request));
  };
  EXPECT_EQ(preflight()->response.status, 405);
  EXPECT_EQ(preflight()->Header("Access-Control-Allow-Origin"), "");
  GatewayOptions options;
  options.cors_origins = {"https://b.example"};
  Make(options);
  EXPECT_EQ(preflight()->Header("Access-Control-Allow-Origin"), "");
  options.cors_origins = {"https://a.example"};
  Make(options, /*with_keys=*/true);  // a preflight has no key
  EXPECT_EQ(preflight()->response.status, 204);
  EXPECT_EQ(preflight()->Header("Access-Control-Allow-Origin"),
            "https://a.example");
}

TEST_F(GatewayServiceTest, SitesMaySendAndReadTheHeadersOfSdks) {
  GatewayOptions options;
  options.cors_origins = {"*"};
  Make(options);
  const auto allowed = [this](const std::string& wanted) {
    HttpRequest request;
    request.method = "OPTIONS";
    request.path = "/v1/chat/completions";
    request.headers = {{"Origin", "https://a.example"},
                       {"Access-Control-Request-Headers", wanted}};
    return Send(std::move(request))->Header("Access-Control-Allow-Headers");
  };
  EXPECT_EQ(allowed("authorization,x-stainless-os"),
            "authorization,x-stainless-os");
  const std::string usual = "Authorization, Content-Type, X-Request-Id";
  EXPECT_EQ(allowed(""), usual);
  EXPECT_EQ(allowed("a: b\r\nc"), usual);
  EXPECT_EQ(allowed(std::string(3000, 'a')), usual);
  const auto exchange = Get("/v1/models", {{"Origin", "https://a.example"}});
  EXPECT_EQ(exchange->Header("Access-Control-Expose-Headers"),
            "X-Request-Id, Request-Id, X-Foretoken-Ignored-Fields, "
            "Retry-After, Retry-After-Ms");
  EXPECT_EQ(exchange->Header("Vary"), "Origin");
  EXPECT_EQ(Get("/v1/models")->Header("Vary"), "Origin");
}

TEST_F(GatewayServiceTest, WithoutKeysAPageCannotTakeTheServersPlace) {
  GatewayOptions options;
  options.allowed_hosts = {"llm.example"};
  const auto status = [this](const std::string& host, const std::string& peer) {
    return Get("/v1/models", {{"Host", host}}, peer)->response.status;
  };
  for (const bool with_keys : {false, true}) {
    Make(options, with_keys);
    const int refused = with_keys ? 401 : 403;
    const int served = with_keys ? 401 : 200;
    for (const char* peer : {"127.0.0.1", "::/64"}) {
      for (const char* host :
           {"evil.example:8080", "localhost.evil.example",
            "127.0.0.1.evil.example", "[::1", "[evil]:1", "1.2.3"}) {
        EXPECT_EQ(status(host, peer), refused) << host;
      }
      for (const char* host :
           {"localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080",
            "192.0.2.7", "llm.example", "LLM.example:80", "localhost.", ""}) {
        EXPECT_EQ(status(host, peer), served) << host;
      }
    }
    // Not a browser of this machine.
    EXPECT_EQ(status("evil.example", "192.0.2.1"), served);
    EXPECT_EQ(status("evil.example", "user 0"), served);
  }
  EXPECT_EQ(
      Get("/health", {{"Host", "evil.example"}}, "127.0.0.1")->response.status,
      200);
}

TEST(GenerationExchangeTest, EchoesAreCountedWithEveryChoice) {
  ApiRequest request;
  request.prompts = {std::string(1000, 'a')};
  request.n = kMaxChoices;
  const int64_t without = GenerationExchange::Bytes(request, 1);
  request.echo = true;
  // The text of each, and that of the body.
  EXPECT_GE(GenerationExchange::Bytes(request, 1),
            without + 2 * kMaxChoices * 1000);
}

TEST_F(GatewayServiceTest, RequestIdsThatCannotBeLoggedAreReplaced) {
  Post("/v1/completions", R"({"prompt": "a"})", {{"X-Request-Id", "no\nline"}});
  EXPECT_THAT(call().request.request_id, SizeIs(24));
}

TEST_F(GatewayServiceTest, LargeBodiesAreReadElsewhere) {
  const auto exchange =
      Post("/v1/completions",
           absl::StrCat(R"({"prompt": ")", std::string(100000, 'a'), "\"}"));
  service_.reset();  // waits for the work
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_THAT(*call().request.text, SizeIs(100000));
  EXPECT_EQ(exchange->ends, 0);
}

}  // namespace
}  // namespace foretoken::gateway
