// Constraints of tool calls: what they say, and that the reader of answers
// finds in every text that they allow the calls that are in it.
#include "services/gateway/core/tool_rules.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/grammar/automaton.h"
#include "common/grammar/compile.h"
#include "common/grammar/constrained_text.h"
#include "common/text/chat/chat_answer.h"
#include "common/text/chat/model_chat.h"
#include "common/text/detokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/requests.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kEnd = 200;
constexpr TokenId kObject = 207;  // {"name": "

// With longer tokens, and the controls of all forms.
std::shared_ptr<const Tokenizer> MakeTokenizer() {
  return testing::MakeAsciiTokenizer(R"([
      {"id": 200, "content": "</s>", "special": true},
      {"id": 201, "content": "[TOOL_CALLS]", "special": true},
      {"id": 202, "content": "[ARGS]", "special": true},
      {"id": 203, "content": "[CALL_ID]", "special": true},
      {"id": 204, "content": "<|python_tag|>", "special": true},
      {"id": 205, "content": "<tool_call>", "special": false},
      {"id": 206, "content": "</tool_call>", "special": false},
      {"id": 207, "content": "{\"name\": \"", "special": false},
      {"id": 208, "content": "TOOL_CALLS]", "special": false},
      {"id": 209, "content": "\", \"", "special": false},
      {"id": 210, "content": "```json\n", "special": false},
      {"id": 211, "content": "}\n</tool", "special": false}])");
}

struct Form {
  std::string name;
  std::string chat_template;
  std::string begin, before_name, before_arguments, after_arguments, separator,
      end;
};

const std::vector<Form>& Forms() {
  static const auto* const forms = new std::vector<Form>{
      {"hermes", "{{ '<tool_call>' }}", "", "<tool_call>\n{\"name\": \"",
       "\", \"arguments\": ", "}\n</tool_call>", "\n", ""},
      {"llama3", "{{ '<|python_tag|>' }}", "", "{\"name\": \"",
       "\", \"parameters\": ", "}", "; ", ""},
      {"mistral", "{{ '[TOOL_CALLS] [' }}", "[TOOL_CALLS] [", "{\"name\": \"",
       "\", \"arguments\": ", "}", ", ", "]"},
      {"mistral nemo", "{{ '[TOOL_CALLS][' }}", "[TOOL_CALLS][",
       "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"},
      {"mistral with arguments", "{{ '[TOOL_CALLS]' ~ '[ARGS]' }}", "",
       "[TOOL_CALLS]", "[ARGS]", "", "", ""}};
  return *forms;
}

std::unique_ptr<ModelChat> MakeChat(const Form& form) {
  static const auto* const tokenizer =
      new std::shared_ptr<const Tokenizer>(MakeTokenizer());
  auto chat = ModelChat::Create(*tokenizer, form.chat_template);
  EXPECT_THAT(chat, testing::IsOk());
  return *std::move(chat);
}

constexpr char kSchemaOfF[] =
    R"({"type": "object", "properties": {"x": {"type": "integer",
        "minimum": -50, "maximum": 500}, "s": {"type": "string",
        "maxLength": 6}, "e": {"enum": ["]", "}}", "[TOOL_CALLS]"]}},
        "required": ["x"], "additionalProperties": false})";
constexpr char kSchemaOfG[] =
    R"({"properties": {"a": {"type": "array", "maxItems": 3,
        "items": {"type": "boolean"}}}, "additionalProperties": false})";

ApiRequest Read(const std::string& fields) {
  auto request = ReadChatRequest(absl::StrCat(
      R"({"messages": [{"role": "user", "content": "a"}], "tools": [
           {"type": "function", "function": {"name": "f", "strict": true,
            "parameters": )",
      kSchemaOfF, R"(}}, {"function": {"name": "g.2", "parameters": )",
      kSchemaOfG, R"(}}, {"name": "none", "strict": false}])", fields, "}"));
  EXPECT_THAT(request, testing::IsOk());
  return *std::move(request);
}

Json SourceOf(const ApiRequest& request) {
  EXPECT_EQ(request.generation.constraint.kind, Constraint::Kind::kToolCalls);
  EXPECT_EQ(request.constraint_field, "tools");
  return ParseJson(request.generation.constraint.source).value_or(Json());
}

std::vector<std::string> NamesIn(const Json& source) {
  std::vector<std::string> names;
  for (const Json& tool : source["tools"]) names.push_back(tool["name"]);
  return names;
}

TEST(ToolRulesTest, RequiredCallsFollowAllSchemas) {
  const auto chat = MakeChat(Forms()[0]);
  ApiRequest request = Read(R"(, "tool_choice": "required")");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, request));
  const Json source = SourceOf(request);
  EXPECT_EQ(source["text"], "none");
  EXPECT_EQ(source["max_calls"], ToolCallParser::kMaxCalls);
  EXPECT_EQ(source["before_name"], Json::array({"<tool_call>\n{\"name\": \""}));
  EXPECT_THAT(NamesIn(source), ElementsAre("f", "g.2", "none"));
  EXPECT_EQ(source["tools"][0]["parameters"], Json::parse(kSchemaOfF));
  EXPECT_EQ(source["tools"][1]["parameters"], Json::parse(kSchemaOfG));
  EXPECT_EQ(source["tools"][2]["parameters"]["additionalProperties"], false);
  ApiRequest one =
      Read(R"(, "tool_choice": "required", "parallel_tool_calls": false)");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, one));
  EXPECT_EQ(SourceOf(one)["max_calls"], 1);
}

TEST(ToolRulesTest, ANamedFunctionIsCalledOnce) {
  const auto chat = MakeChat(Forms()[1]);
  ApiRequest request = Read(
      R"(, "tool_choice": {"type": "function", "function": {"name": "g.2"}})");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, request));
  const Json source = SourceOf(request);
  EXPECT_EQ(source["text"], "none");
  EXPECT_EQ(source["max_calls"], 1);
  EXPECT_THAT(NamesIn(source), ElementsAre("g.2"));
}

TEST(ToolRulesTest, StrictToolsLeaveTextAndOtherToolsFree) {
  ApiRequest request = Read("");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*MakeChat(Forms()[0]), request));
  const Json source = SourceOf(request);
  EXPECT_EQ(source["text"], "before");
  EXPECT_THAT(NamesIn(source), ElementsAre("f", "g.2", "none"));
  EXPECT_EQ(source["tools"][1]["parameters"], Json({{"type", "object"}}));
  ApiRequest llama = Read("");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*MakeChat(Forms()[1]), llama));
  EXPECT_EQ(SourceOf(llama)["text"], "instead");
  EXPECT_EQ(SourceOf(llama)["first"], "{");
  ApiRequest mistral = Read("");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*MakeChat(Forms()[2]), mistral));
  EXPECT_EQ(SourceOf(mistral)["begin"],
            Json::parse(R"([{"control": "[TOOL_CALLS]"}, " ["])"));
}

TEST(ToolRulesTest, WithoutRulesThereIsNoConstraint) {
  const auto chat = MakeChat(Forms()[0]);
  ApiRequest none = Read(R"(, "tool_choice": "none")");
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, none));
  EXPECT_TRUE(none.generation.constraint.empty());
  auto plain = ReadChatRequest(
      R"({"messages": [{"role": "user", "content": "a"}],
          "tools": [{"function": {"name": "f"}}]})");
  ASSERT_THAT(plain, testing::IsOk());
  FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, *plain));
  EXPECT_TRUE(plain->generation.constraint.empty());
}

TEST(ToolRulesTest, WhatAFormDoesNotHaveIsRefusedByField) {
  Form none;
  none.chat_template = "{{ messages }}";
  ApiRequest required = Read(R"(, "tool_choice": "required")");
  EXPECT_EQ(ToApiError(ConstrainToolCalls(*MakeChat(none), required)).param,
            "tool_choice");
  ApiRequest strict = Read("");
  EXPECT_EQ(ToApiError(ConstrainToolCalls(*MakeChat(none), strict)).param,
            "tools");
  auto names = ReadChatRequest(
      R"({"messages": [{"role": "user", "content": "a"}],
          "tool_choice": "required",
          "tools": [{"name": "f"}, {"function": {"name": "a b"}}]})");
  ASSERT_THAT(names, testing::IsOk());
  const ApiError error =
      ToApiError(ConstrainToolCalls(*MakeChat(Forms()[0]), *names));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, "tools[1]");
}

// A text of random tokens that the constraint allows, as it is delivered.
class RandomAnswer {
 public:
  RandomAnswer(const ModelChat& chat,
               std::shared_ptr<grammar::LiveGrammar> grammar, uint32_t seed)
      : chat_(chat), text_(std::move(grammar), {kEnd}), random_(seed) {}

  // False if it did not end soon enough.
  bool Write(std::vector<TokenId>& ids) {
    for (int i = 0; i < 1500; ++i) {
      if (text_.complete()) return true;
      const auto masks = text_.MaskRows({0}, {-1});
      EXPECT_THAT(masks, testing::IsOk());
      if (!masks.ok()) return false;
      std::vector<TokenId> likely, others;
      for (TokenId token = 0; token < chat_.tokenizer().vocab_size(); ++token) {
        if (!grammar::HasToken(*masks->at(0), token)) continue;
        (token >= kEnd ? likely : others).push_back(token);
      }
      // Beginnings of objects are rare among random texts.
      if (i == 0 && grammar::HasToken(*masks->at(0), kObject) &&
          random_() % 2 == 0) {
        likely = {kObject};
        others.clear();
      }
      const bool special =
          others.empty() || (!likely.empty() && random_() % 10 == 0);
      const std::vector<TokenId>& from = special ? likely : others;
      const TokenId token = from[random_() % from.size()];
      if (token == kEnd) return true;
      ids.push_back(token);
      text_.Append({token});
      EXPECT_THAT(text_.status(), testing::IsOk());
      if (!text_.status().ok()) return false;
    }
    return false;
  }

 private:
  const ModelChat& chat_;
  grammar::ConstrainedText text_;
  std::minstd_rand random_;
};

struct Answer {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool cut_off = false;
};

// `spelled`: the text with its control tokens.
Answer ReadBack(const ModelChat& chat, const ApiRequest& request,
                const std::vector<TokenId>& ids, std::string& spelled) {
  ChatAnswer reader(chat, request.tool_names, 1,
                    {.fences = ToolCallParser::Fences::kIgnored});
  Answer answer;
  const auto add = [&](const AnswerDelta& delta) {
    answer.content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (!call.id.empty()) answer.calls.emplace_back(call.name, "");
      answer.calls.back().second += call.arguments;
    }
  };
  Detokenizer detokenizer(chat.tokenizer(), Detokenizer::Start::kBehindPrompt);
  SpelledControls controls(chat.tokenizer(), chat.tool_call_controls());
  const auto spell = [&](absl::string_view piece, bool /*is_control*/) {
    absl::StrAppend(&spelled, piece);
  };
  for (const TokenId id : ids) {
    std::string text;
    FORETOKEN_EXPECT_OK(detokenizer.Push(id, text));
    add(reader.Take({id}, text));
    controls.Take({id}, text, spell);
  }
  std::string text;
  detokenizer.Flush(text);
  add(reader.Take({}, text));
  controls.Take({}, text, spell);
  controls.Finish(spell);
  add(reader.Finish());
  answer.cut_off = reader.cut_off();
  return answer;
}

bool IsValid(const std::string& schema, const std::string& value) {
  const auto grammar =
      grammar::Compile({Constraint::Kind::kJsonSchema, schema, {}});
  EXPECT_THAT(grammar, testing::IsOk());
  return grammar::Automaton(*grammar).Matches(value);
}

TEST(ToolRulesTest, TheReaderFindsTheCallsOfEveryTextThatIsAllowed) {
  const std::string choices[] = {
      "", R"(, "tool_choice": "required")",
      R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})"};
  for (const Form& form : Forms()) {
    const auto chat = MakeChat(form);
    const auto words =
        grammar::TokenVocabulary::Of(chat->shared_tokenizer(), 0);
    for (const std::string& choice : choices) {
      SCOPED_TRACE(absl::StrCat(form.name, choice));
      ApiRequest request = Read(choice);
      FORETOKEN_ASSERT_OK(ConstrainToolCalls(*chat, request));
      const auto compiled = grammar::Compile(request.generation.constraint);
      ASSERT_THAT(compiled, testing::IsOk());
      const auto live =
          std::make_shared<grammar::LiveGrammar>(*compiled, words);
      int with_calls = 0, with_text = 0, with_several = 0;
      for (uint32_t seed = 1; seed <= 60; ++seed) {
        std::vector<TokenId> ids;
        if (!RandomAnswer(*chat, live, seed).Write(ids)) continue;
        std::string spelled;
        const Answer answer = ReadBack(*chat, request, ids, spelled);
        EXPECT_FALSE(answer.cut_off) << spelled;
        std::vector<std::string> calls;
        for (const auto& [name, arguments] : answer.calls) {
          calls.push_back(absl::StrCat(form.before_name, name,
                                       form.before_arguments, arguments,
                                       form.after_arguments));
          // Arguments of a tool that is not strict are any object.
          if (!choice.empty() || name == "f") {
            const std::string schema = name == "f" ? kSchemaOfF
                                       : name == "g.2"
                                           ? kSchemaOfG
                                           : R"({"maxProperties": 0})";
            EXPECT_TRUE(IsValid(schema, arguments)) << spelled;
          }
        }
        if (calls.empty()) {
          EXPECT_EQ(choice, "") << spelled;
          EXPECT_EQ(answer.content, spelled);
          ++with_text;
          continue;
        }
        ++with_calls;
        with_several += calls.size() > 1;
        // White space before a call goes with it.
        const std::string written = absl::StrCat(
            form.begin, absl::StrJoin(calls, form.separator), form.end);
        ASSERT_TRUE(absl::EndsWith(spelled, written))
            << spelled << "\nread as\n"
            << written;
        const std::string before =
            spelled.substr(0, spelled.size() - written.size());
        EXPECT_EQ(absl::StripTrailingAsciiWhitespace(before),
                  absl::StripTrailingAsciiWhitespace(answer.content));
        if (!choice.empty()) {
          EXPECT_THAT(before, IsEmpty());
        }
      }
      EXPECT_GT(with_calls, 10);
      if (choice.empty()) {
        EXPECT_GT(with_text, 2);
      }
      if (absl::StrContains(choice, "required")) {
        EXPECT_GT(with_several, 2);
      }
    }
  }
}

}  // namespace
}  // namespace foretoken::gateway
