// Where reasoning goes, and that every constrained answer of a model that
// thinks is read back as thinking and a text of the constraint.
#include "services/gateway/core/reasoning_rules.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/grammar/automaton.h"
#include "common/grammar/compile.h"
#include "common/grammar/constrained_text.h"
#include "common/text/detokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/chat_output.h"
#include "services/gateway/core/requests.h"
#include "services/gateway/core/tool_rules.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::testing::IsEmpty;

constexpr TokenId kEnd = 100;
constexpr TokenId kOpen = 101;
constexpr TokenId kClose = 102;

absl::StatusOr<ApiRequest> TryRead(const std::string& fields) {
  return ReadChatRequest(absl::StrCat(
      R"({"messages": [{"role": "user", "content": "a"}])", fields, "}"));
}

ApiRequest Read(const std::string& fields) {
  auto request = TryRead(fields);
  EXPECT_THAT(request, testing::IsOk()) << fields;
  return request.ok() ? *std::move(request) : ApiRequest();
}

TEST(ReasoningRulesTest, EveryServersFieldsSayWhereItGoes) {
  const std::pair<const char*, ReasoningPlace> cases[] = {
      {"", ReasoningPlace::kOwnField},
      {R"(, "separate_reasoning": true)", ReasoningPlace::kOwnField},
      {R"(, "separate_reasoning": false)", ReasoningPlace::kContent},
      {R"(, "reasoning_format": "none")", ReasoningPlace::kContent},
      {R"(, "reasoning_format": "auto")", ReasoningPlace::kOwnField},
      {R"(, "reasoning_format": "deepseek", "separate_reasoning": true)",
       ReasoningPlace::kOwnField},
      {R"(, "reasoning_format": "none", "separate_reasoning": false)",
       ReasoningPlace::kContent},
      {R"(, "include_reasoning": true)", ReasoningPlace::kOwnField},
      {R"(, "include_reasoning": false)", ReasoningPlace::kNowhere},
      {R"(, "include_reasoning": false, "reasoning_format": "auto")",
       ReasoningPlace::kNowhere},
      {R"(, "separate_reasoning": null, "reasoning_format": null)",
       ReasoningPlace::kOwnField},
      // That ask for nothing.
      {R"(, "stream_reasoning": true, "reasoning_in_content": false,
           "thinking_forced_open": false)",
       ReasoningPlace::kOwnField},
      {R"(, "stream_reasoning": true, "separate_reasoning": false)",
       ReasoningPlace::kContent}};
  for (const auto& [fields, place] : cases) {
    EXPECT_EQ(Read(fields).reasoning, place) << fields;
  }
}

// Templates of models that do not think, think always, think unless told not
// to, and have levels.
constexpr char kPlain[] = "{{ messages[0].content }}";
constexpr char kAlways[] = "{{ messages[0].content }}<think>{{ '</think>' }}";
constexpr char kSwitched[] =
    "{{ messages[0].content }}{% if enable_thinking is defined %}"
    "{{ enable_thinking }}{% endif %}{{ '</think>' }}";
constexpr char kOther[] =
    "{{ messages[0].content }}{% if thinking %}{{ '</think>' }}{% endif %}";
constexpr char kLevels[] = "{{ messages[0].content }}{{ reasoning_effort }}";
constexpr char kBoth[] =
    "{{ reasoning_effort }}{{ enable_thinking }}{{ '</think>' }}";

struct Wish {
  const char* source;
  const char* fields;
  const char* variables;  // that the template gets, or why there are none
  const char* ignored;
};

absl::Status Apply(const Wish& wish, ApiRequest& request) {
  const auto chat =
      ModelChat::Create(testing::MakeAsciiTokenizer("[]"), wish.source);
  FORETOKEN_RETURN_IF_ERROR(chat.status());
  request = Read(wish.fields);
  return ApplyThinkingWish(**chat, request);
}

TEST(ReasoningRulesTest, AWishBecomesAVariableOrChangesNothing) {
  constexpr char kLow[] = R"(, "reasoning_effort": "low")";
  constexpr char kMedium[] = R"(, "reasoning_effort": "medium")";
  constexpr char kNone[] = R"(, "reasoning_effort": "none")";
  constexpr char kOn[] = R"(, "enable_thinking": true)";
  constexpr char kOff[] = R"(, "enable_thinking": false)";
  const Wish wishes[] = {
      {kPlain, "", "", ""},
      {kPlain, kLow, "", "reasoning_effort"},
      {kPlain, kNone, "", "reasoning_effort"},
      {kPlain, kOn, "", "enable_thinking"},
      {kPlain, R"(, "think": false)", "", "think"},
      {kAlways, "", "", ""},
      {kAlways, kMedium, "", "reasoning_effort"},
      {kAlways, kOn, "", "enable_thinking"},
      {kSwitched, "", "", ""},
      {kSwitched, kMedium, "", "reasoning_effort"},
      {kSwitched, kNone, R"({"enable_thinking":false})", ""},
      {kSwitched, kOff, R"({"enable_thinking":false})", ""},
      {kSwitched, R"(, "think": true)", R"({"enable_thinking":true})", ""},
      {kSwitched, R"(, "enable_thinking": false, "reasoning_effort": "none")",
       R"({"enable_thinking":false})", ""},
      {kOther, kOff, R"({"thinking":false})", ""},
      {kOther, kNone, R"({"thinking":false})", ""},
      {kLevels, kLow, R"({"reasoning_effort":"low"})", ""},
      {kLevels, R"(, "reasoning_effort": "xhigh")",
       R"({"reasoning_effort":"xhigh"})", ""},
      {kLevels, kOff, "", "enable_thinking"},
      {kBoth, kLow, R"({"reasoning_effort":"low"})", ""},
      {kBoth, kNone, R"({"enable_thinking":false})", ""},
      {kBoth, R"(, "reasoning_effort": "high", "think": true)",
       R"({"enable_thinking":true,"reasoning_effort":"high"})", ""},
      // Together with other variables, and with the same one.
      {kSwitched, R"(, "think": false, "chat_template_kwargs": { "a" : 1})",
       R"({"enable_thinking":false,"a" : 1})", ""},
      {kSwitched, R"(, "think": false, "chat_template_kwargs": { })",
       R"({"enable_thinking":false})", ""},
      {kSwitched,
       R"(, "think": false, "chat_template_kwargs": {"enable_thinking": false})",
       R"({"enable_thinking": false})", ""},
  };
  for (const Wish& wish : wishes) {
    ApiRequest request;
    FORETOKEN_ASSERT_OK(Apply(wish, request)) << wish.source << wish.fields;
    EXPECT_EQ(request.conversation->variables, wish.variables)
        << wish.source << wish.fields;
    EXPECT_EQ(absl::StrJoin(request.ignored_fields, ","), wish.ignored)
        << wish.source << wish.fields;
  }
}

TEST(ReasoningRulesTest, AWishThatTheModelCannotMeetIsRefused) {
  const Wish wishes[] = {
      {kAlways, R"(, "reasoning_effort": "none")",
       "reasoning_effort: this model always thinks", ""},
      {kAlways, R"(, "enable_thinking": false)",
       "enable_thinking: this model always thinks", ""},
      {kAlways, R"(, "think": false)", "think: this model always thinks", ""},
      {kAlways, R"(, "reasoning_effort": "high")",
       "reasoning_effort: this model has no levels of reasoning, want medium",
       ""},
      {kSwitched, R"(, "reasoning_effort": "high")",
       "reasoning_effort: this model has no levels of reasoning, want medium "
       "or none",
       ""},
      {kSwitched,
       R"(, "think": true, "chat_template_kwargs": {"enable_thinking": false})",
       "think: differs from chat_template_kwargs.enable_thinking", ""},
      {kSwitched, R"(, "enable_thinking": true, "reasoning_effort": "none")",
       "enable_thinking: is on, but reasoning_effort is none", ""},
      {kPlain, R"(, "think": true, "reasoning_effort": "none")",
       "think: is on, but reasoning_effort is none", ""},
  };
  for (const Wish& wish : wishes) {
    ApiRequest request;
    const absl::Status status = Apply(wish, request);
    EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                          std::string(wish.variables)))
        << wish.fields;
    EXPECT_EQ(ToApiError(status).http_status, 400);
  }
}

TEST(ReasoningRulesTest, ResponsesHaveTheEffortInTheirReasoning) {
  const auto request = ReadResponsesRequest(
      R"({"input": "a", "reasoning": {"effort": "low", "summary": "auto"}})");
  FORETOKEN_ASSERT_OK(request);
  EXPECT_EQ(request->thinking_wish.effort, "low");
  EXPECT_EQ(request->thinking_wish.effort_field, "reasoning.effort");
}

TEST(ReasoningRulesTest, FieldsThatAreNotServedOrContradictAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"separate_reasoning", R"(, "separate_reasoning": 1)"},
      {"include_reasoning", R"(, "include_reasoning": "no")"},
      {"reasoning_format", R"(, "reasoning_format": "deepseek-legacy")"},
      {"reasoning_format", R"(, "reasoning_format": false)"},
      {"stream_reasoning", R"(, "stream_reasoning": false)"},
      {"reasoning_in_content", R"(, "reasoning_in_content": true)"},
      {"thinking_forced_open", R"(, "thinking_forced_open": true)"},
      {"reasoning_format",
       R"(, "reasoning_format": "none", "separate_reasoning": true)"},
      {"reasoning_format",
       R"(, "reasoning_format": "auto", "separate_reasoning": false)"},
      {"include_reasoning",
       R"(, "include_reasoning": false, "separate_reasoning": false)"},
      {"include_reasoning",
       R"(, "include_reasoning": false, "reasoning_format": "none")"}};
  for (const auto& [field, fields] : cases) {
    const ApiError error = ToApiError(TryRead(fields).status());
    EXPECT_EQ(error.http_status, 400) << fields;
    EXPECT_EQ(error.param, field) << fields;
  }
}

// A model whose tags are text or special tokens.
std::unique_ptr<ModelChat> MakeChat(bool special) {
  const std::string open = special ? "[THINK]" : "<think>";
  const std::string close = special ? "[/THINK]" : "</think>";
  const char* const is_special = special ? "true" : "false";
  auto chat =
      ModelChat::Create(testing::MakeAsciiTokenizer(absl::StrCat(
                            R"([{"id": 100, "content": "</s>", "special": true},
              {"id": 101, "content": ")",
                            open, R"(", "special": )", is_special,
                            R"(}, {"id": 102, "content": ")", close,
                            R"(", "special": )", is_special, R"(},
              {"id": 103, "content": "</thi", "special": false},
              {"id": 104, "content": "THINK]", "special": false},
              {"id": 105, "content": "<tool_call>\n", "special": false},
              {"id": 106, "content": "\n\n", "special": false}])")),
                        absl::StrCat("{{ '", open, close, "<tool_call>' }}"));
  EXPECT_THAT(chat, testing::IsOk());
  return *std::move(chat);
}

TEST(ReasoningRulesTest, AConstrainedAnswerMayThinkWhereTheModelDoes) {
  const std::string fields = R"(, "response_format": {"type": "json_object"})";
  for (const bool special : {false, true}) {
    ApiRequest request = Read(fields);
    if (special) request.thinking = ThinkingStage::kInside;
    AllowThinking(*MakeChat(special), request);
    const Thinking& thinking = request.generation.constraint.thinking;
    EXPECT_EQ(thinking.open.text, special ? "[THINK]" : "<think>");
    EXPECT_EQ(thinking.close.text, special ? "[/THINK]" : "</think>");
    EXPECT_EQ(thinking.open.is_control, special);
    EXPECT_EQ(thinking.close.is_control, special);
    EXPECT_EQ(thinking.opened, special);
    request.generation.constraint.thinking = {};
    request.thinking = ThinkingStage::kOver;
    AllowThinking(*MakeChat(special), request);
    EXPECT_TRUE(request.generation.constraint.thinking.empty());
    ApiRequest free = Read("");
    AllowThinking(*MakeChat(special), free);
    EXPECT_TRUE(free.generation.constraint.empty());
    EXPECT_TRUE(free.generation.constraint.thinking.empty());
  }
  ApiRequest request = Read(fields);
  const auto plain =
      ModelChat::Create(testing::MakeAsciiTokenizer("[]"), "{{ messages }}");
  FORETOKEN_ASSERT_OK(plain);
  AllowThinking(**plain, request);
  EXPECT_TRUE(request.generation.constraint.thinking.empty());
}

// A text of random tokens that the constraint allows. False if it did not end
// soon enough.
bool WriteRandom(grammar::ConstrainedText& text, int32_t vocabulary,
                 std::minstd_rand& random, std::vector<TokenId>& ids) {
  while (ids.size() < 600 && !text.complete()) {
    const auto masks = text.MaskRows({0}, {-1});
    EXPECT_THAT(masks, testing::IsOk());
    if (!masks.ok()) return false;
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocabulary; ++token) {
      if (grammar::HasToken(*masks->at(0), token)) allowed.push_back(token);
    }
    TokenId token = allowed[random() % allowed.size()];
    // The tags are rare among random tokens.
    for (const TokenId tag : {kOpen, kClose, kEnd}) {
      if (grammar::HasToken(*masks->at(0), tag) && random() % 8 == 0) {
        token = tag;
      }
    }
    if (token == kEnd) return true;
    ids.push_back(token);
    text.Append({token});
    EXPECT_THAT(text.status(), testing::IsOk());
    if (!text.status().ok()) return false;
  }
  return text.complete();
}

struct Answer {
  std::string content, reasoning;
  int calls = 0;
  int64_t reasoning_tokens = 0;
};

Answer ReadBack(const ModelChat& chat, const ApiRequest& request,
                const std::vector<TokenId>& ids) {
  AnswerOptions options;
  options.chat = &chat;
  ChatSplitter splitter(request, options, 0);
  Answer answer;
  const auto add = [&](const AnswerDelta& delta) {
    answer.content += delta.content;
    answer.reasoning += delta.reasoning;
  };
  Detokenizer detokenizer(chat.tokenizer(), Detokenizer::Start::kBehindPrompt);
  for (const TokenId id : ids) {
    GenerationDelta delta;
    delta.token_ids = {id};
    FORETOKEN_EXPECT_OK(detokenizer.Push(id, delta.text));
    add(splitter.Take(delta));
  }
  GenerationDelta rest;
  detokenizer.Flush(rest.text);
  add(splitter.Take(rest));
  add(splitter.Finish());
  EXPECT_FALSE(splitter.cut_off());
  answer.calls = splitter.calls();
  answer.reasoning_tokens = splitter.reasoning_tokens();
  return answer;
}

constexpr char kRequiredCall[] = R"(, "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f",
      "parameters": {"additionalProperties": false, "properties": {
        "x": {"enum": [1, 22]}}, "required": ["x"]}}}])";

TEST(ReasoningRulesTest, EveryAnswerThatIsAllowedIsReadBack) {
  const std::string constraints[] = {
      R"(, "response_format": {"type": "json_schema", "json_schema": {
           "schema": {"type": "object", "properties": {
             "a": {"type": "boolean"}}, "required": ["a"],
             "additionalProperties": false}}})",
      R"(, "guided_regex": "\\s{0,4}([a-c]{1,3}|<thi)\\s{0,4}")",
      R"(, "guided_choice": ["yes", " no", "<think>"])",
      R"(, "guided_grammar": "root ::= [ \\n]? \"ok\" [ \\n]?")",
      R"(, "response_format": {"type": "structural_tag", "triggers": ["<f="],
           "structures": [{"begin": "<f=a>", "end": "</f>",
                           "schema": {"enum": [1]}}]})",
      kRequiredCall};
  for (const bool special : {false, true}) {
    const auto chat = MakeChat(special);
    const auto words =
        grammar::TokenVocabulary::Of(chat->shared_tokenizer(), 0);
    for (const std::string& fields : constraints) {
      const bool is_call = fields == kRequiredCall;
      for (const bool opened : {false, true}) {
        SCOPED_TRACE(absl::StrCat(special, " ", opened, " ", fields));
        ApiRequest request = Read(fields);
        FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, request));
        const auto alone = grammar::Compile(request.generation.constraint);
        ASSERT_THAT(alone, testing::IsOk());
        grammar::Automaton automaton(*alone);
        if (opened) request.thinking = ThinkingStage::kInside;
        AllowThinking(*chat, request);
        const auto compiled = grammar::Compile(request.generation.constraint);
        ASSERT_THAT(compiled, testing::IsOk());
        const auto live =
            std::make_shared<grammar::LiveGrammar>(*compiled, words);
        int thought = 0, answered = 0;
        for (uint32_t seed = 1; seed <= 40; ++seed) {
          std::minstd_rand random(seed);
          grammar::ConstrainedText text(live, {kEnd});
          std::vector<TokenId> ids;
          if (!WriteRandom(text, chat->tokenizer().vocab_size(), random, ids)) {
            continue;
          }
          const Answer answer = ReadBack(*chat, request, ids);
          const std::string written = chat->tokenizer().Decode(ids).value();
          if (is_call) {
            EXPECT_GT(answer.calls, 0) << written;
            EXPECT_THAT(answer.content, IsEmpty()) << written;
          } else {
            EXPECT_TRUE(automaton.Matches(answer.content))
                << written << "\nread as\n"
                << answer.content;
          }
          ++answered;
          thought += answer.reasoning_tokens > 0;
          if (opened) {
            EXPECT_GT(answer.reasoning_tokens, 0) << written;
          }
        }
        EXPECT_GT(answered, 20);
        EXPECT_GT(thought, 3);
        if (!opened) {
          EXPECT_LT(thought, answered);
        }
      }
    }
  }
}

}  // namespace
}  // namespace foretoken::gateway
