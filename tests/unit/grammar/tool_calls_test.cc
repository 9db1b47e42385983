#include "common/grammar/tool_calls.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grammar/automaton.h"
#include "common/grammar/compile.h"
#include "common/grammar/constrained_text.h"
#include "common/text/vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kHermes[] = R"(
    "opener": "<tool_call>", "begin": "", "end": "", "separator": "\n",
    "before_name": "<tool_call>\n{\"name\": \"",
    "before_arguments": "\", \"arguments\": ",
    "after_arguments": "}\n</tool_call>")";
constexpr char kLlama[] = R"(
    "opener": "<|python_tag|>", "first": "{", "begin": "", "end": "",
    "separator": "; ", "before_name": "{\"name\": \"",
    "before_arguments": "\", \"parameters\": ", "after_arguments": "}")";
constexpr char kMistral[] = R"(
    "opener": "[TOOL_CALLS]", "begin": [{"control": "[TOOL_CALLS]"}, "["],
    "end": "]", "separator": ", ", "before_name": "{\"name\": \"",
    "before_arguments": "\", \"arguments\": ", "after_arguments": "}")";
constexpr char kTools[] = R"([
    {"name": "f", "parameters": {"type": "object",
       "properties": {"x": {"type": "integer"}}, "required": ["x"],
       "additionalProperties": false}},
    {"name": "g.h-2", "parameters": {"additionalProperties": false}}])";

std::string Source(absl::string_view form, absl::string_view text,
                   int max_calls, absl::string_view tools = kTools) {
  return absl::StrCat("{", form, ", \"text\": \"", text,
                      "\", \"max_calls\": ", max_calls, ", \"tools\": ", tools,
                      "}");
}

absl::StatusOr<std::shared_ptr<const Grammar>> Compiled(
    const std::string& source) {
  return Compile({Constraint::Kind::kToolCalls, source, {}});
}

bool Accepts(const std::string& source, absl::string_view text) {
  const auto grammar = Compiled(source);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return grammar.ok() && Automaton(*grammar).Matches(text);
}

std::string HermesCall(absl::string_view name, absl::string_view arguments) {
  return absl::StrCat("<tool_call>\n{\"name\": \"", name,
                      "\", \"arguments\": ", arguments, "}\n</tool_call>");
}

TEST(ToolCallsTest, ACallHasAKnownNameAndValidArguments) {
  const std::string source = Source(kHermes, "none", 2);
  const std::string f = HermesCall("f", "{\"x\": 12}");
  const std::string g = HermesCall("g.h-2", "{}");
  EXPECT_TRUE(Accepts(source, f));
  EXPECT_TRUE(Accepts(source, g));
  EXPECT_TRUE(Accepts(source, absl::StrCat(f, "\n", g)));
  EXPECT_TRUE(Accepts(source, absl::StrCat(f, "\n", f)));
  for (const std::string& text :
       {std::string(), std::string("Sure."), absl::StrCat("Sure.\n", f),
        f + "\n", f + g, absl::StrCat(f, "\n", g, "\n", f),
        f.substr(0, f.size() - 1), HermesCall("f", "{}"),
        HermesCall("f", "{\"x\": \"1\"}"), HermesCall("f", "{\"x\": 1.5}"),
        HermesCall("f", "{\"x\": 1, \"y\": 2}"), HermesCall("f", "12"),
        HermesCall("f", "[]"), HermesCall("g.h-2", "{\"x\": 1}"),
        HermesCall("h", "{}"), HermesCall("", "{}"), HermesCall("g", "{}"),
        HermesCall("f", "")}) {
    EXPECT_FALSE(Accepts(source, text)) << text;
  }
  EXPECT_FALSE(Accepts(Source(kHermes, "none", 1), absl::StrCat(f, "\n", g)));
}

TEST(ToolCallsTest, TextBeforeCallsHasNoOpenerOfItsOwn) {
  const std::string source = Source(kHermes, "before", 8);
  const std::string f = HermesCall("f", "{\"x\": 0}");
  for (const std::string& text :
       {std::string(), std::string("I see.\n"), std::string("1 <tool <2"),
        std::string("a <tool_call"), f, "I see.\n" + f, "<tool_call" + f,
        absl::StrCat("<<", f, "\n", f), "\u00e9\n\"{" + f,
        std::string("</tool_call>")}) {
    EXPECT_TRUE(Accepts(source, text)) << text;
  }
  for (const std::string& text : std::vector<std::string>{
           "<tool_call>" + f, "a <tool_call> b", "a <tool_call>\n{}", "\xC3",
           f + " and more", "\xFF", "a" + HermesCall("f", "{\"x\": true}")}) {
    EXPECT_FALSE(Accepts(source, text)) << text;
  }
}

TEST(ToolCallsTest, TextInPlaceOfCallsDoesNotBeginLikeOne) {
  const std::string source = Source(kLlama, "instead", 8);
  const std::string f = R"({"name": "f", "parameters": {"x": -3}})";
  for (const std::string& text :
       {std::string(), std::string("I see {}."), std::string(" \n\t"), f,
        absl::StrCat(f, "; ", f), std::string("[{")}) {
    EXPECT_TRUE(Accepts(source, text)) << text;
  }
  for (const std::string& text :
       {std::string("{"), std::string(" \r\n{}"),
        "I see. " + f + "; " + f + "<|python_tag|>",
        std::string("a<|python_tag|>f"), f + ";" + f, f + "; ",
        std::string(R"({"name": "f", "parameters": {}})")}) {
    EXPECT_FALSE(Accepts(source, text)) << text;
  }
}

TEST(ToolCallsTest, ControlsAreTheSpecialTokensAlone) {
  auto vocabulary = std::make_shared<Vocabulary>();
  const std::vector<std::string> texts = {
      "[TOOL_CALLS]",
      "[",
      "]",
      R"({"name": "f", "arguments": {"x": )",
      "7",
      "}}",
      "TOOL_CALLS]",
      "a",
      "\xFF",
      "\xFF[TOOL_CALLS]\xFF"};
  TokenId id = 0;
  for (const std::string& text : texts) {
    vocabulary->Add(id++, text, text, TokenKind::kText);
  }
  const TokenId control = id++;
  const TokenId other = id++;
  const TokenId end = id++;
  vocabulary->Add(control, "[TOOL_CALLS]", "", TokenKind::kSpecial);
  vocabulary->Add(other, "[ARGS]", "", TokenKind::kSpecial);
  vocabulary->Add(end, "</s>", "", TokenKind::kSpecial);
  const auto words = std::make_shared<TokenVocabulary>(vocabulary);

  const auto begin = [&](absl::string_view text) {
    const auto grammar = Compiled(Source(kMistral, text, 1));
    FORETOKEN_EXPECT_OK(grammar);
    return ConstrainedText(std::make_shared<LiveGrammar>(*grammar, words),
                           {end});
  };
  const auto allowed = [&](ConstrainedText& text) {
    const auto masks = text.MaskRows({0}, {-1});
    FORETOKEN_EXPECT_OK(masks);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < id; ++token) {
      if (HasToken(*masks->at(0), token)) tokens.push_back(token);
    }
    return tokens;
  };
  ConstrainedText calls = begin("none");
  EXPECT_THAT(allowed(calls), ::testing::ElementsAre(control));
  calls.Append({control});
  EXPECT_THAT(allowed(calls), ::testing::ElementsAre(1));
  calls.Append({1, 3, 4, 5});
  FORETOKEN_EXPECT_OK(calls.status());
  EXPECT_FALSE(calls.complete());
  calls.Append({2});
  EXPECT_TRUE(calls.complete());

  // Neither a spelled opener nor other special tokens stand in the text.
  ConstrainedText text = begin("before");
  EXPECT_THAT(allowed(text),
              ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, control, end));
  text.Append({7, 1});
  EXPECT_THAT(allowed(text),
              ::testing::ElementsAre(1, 2, 3, 4, 5, 7, control, end));
  text.Append({other});
  EXPECT_THAT(text.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("forbids token")));

  // No other constraint lets special tokens through.
  const auto any = Compile({Constraint::Kind::kRegex, "(.|\\s)*", {}});
  FORETOKEN_ASSERT_OK(any);
  ConstrainedText all(std::make_shared<LiveGrammar>(*any, words), {end});
  EXPECT_THAT(allowed(all),
              ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, end));
}

// Controls are a byte that no text has: negations must not let it through.
TEST(ToolCallsTest, NoOtherConstraintReadsAControl) {
  using Kind = Constraint::Kind;
  const std::vector<Constraint> constraints = {
      {Kind::kRegex, "[^a]*", {}},
      {Kind::kRegex, "(?!ab)[\\s\\S]*", {}},
      {Kind::kRegex, "\\W*\\D*\\P{L}*", {}},
      {Kind::kGrammar, "root ::= [^a]* | \"a\" . root", {}},
      {Kind::kJsonObject, "", {}},
      {Kind::kJsonSchema, "true", {}},
      {Kind::kJsonSchema,
       R"({"type": "string", "not": {"pattern": "^a"}})",
       {}},
      {Kind::kJsonSchema,
       R"({"not": {"enum": ["a", 1, null]}, "type": ["string", "integer"]})",
       {}},
      {Kind::kJsonSchema,
       R"({"type": "object", "properties": {"a": {"format": "email"}},
           "patternProperties": {"^b": {"multipleOf": 3}},
           "additionalProperties": {"pattern": "[^c]"}})",
       {}},
      {Kind::kToolCalls, Source(kHermes, "before", 2), {}},
      {Kind::kToolCalls, Source(kLlama, "instead", 2), {}}};
  std::minstd_rand random(1);
  for (const Constraint& constraint : constraints) {
    const auto grammar = Compile(constraint);
    ASSERT_TRUE(grammar.ok()) << constraint.source << grammar.status();
    Automaton automaton(*grammar);
    for (int walk = 0; walk < 30; ++walk) {
      Automaton::State state = automaton.start();
      for (int i = 0; i < 60 && state != Automaton::kDead; ++i) {
        EXPECT_EQ(automaton.Step(state, uint8_t{0xFF}), Automaton::kDead)
            << constraint.source;
        std::vector<Automaton::State> next;
        for (int byte = 0; byte < 256; ++byte) {
          const auto to = automaton.Step(state, static_cast<uint8_t>(byte));
          if (to != Automaton::kDead) next.push_back(to);
        }
        if (next.empty()) break;
        state = next[random() % next.size()];
      }
    }
  }
}

TEST(ToolCallsTest, ParametersAreSchemasOfObjects) {
  const auto call = [](absl::string_view parameters) {
    return Source(
        kHermes, "none", 1,
        absl::StrCat(R"([{"name": "f", "parameters": )", parameters, "}]"));
  };
  EXPECT_TRUE(Accepts(call("true"), HermesCall("f", "{\"a\": [1]}")));
  EXPECT_TRUE(Accepts(call("{}"), HermesCall("f", "{}")));
  EXPECT_FALSE(Accepts(call("{}"), HermesCall("f", "[]")));
  // References stay within the schema of their tool.
  const std::string nodes = call(R"({"$ref": "#/$defs/node", "$defs": {"node":
      {"type": "object", "additionalProperties": false,
       "properties": {"next": {"$ref": "#/$defs/node"}}}}})");
  EXPECT_TRUE(Accepts(nodes, HermesCall("f", "{\"next\": {\"next\": {}}}")));
  EXPECT_FALSE(Accepts(nodes, HermesCall("f", "{\"next\": 1}")));
  for (const std::string parameters :
       {"false", "3", "[]", R"({"type": "string"})", R"({"type": ["object"]})",
        R"({"$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/x", "x": {}})",
        R"({"type": "object", "required": ["a"], "properties": {"a": false}})",
        R"({"minProperties": -1})"}) {
    EXPECT_THAT(Compiled(call(parameters)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("tool f: parameters: ")))
        << parameters;
  }
  EXPECT_THAT(Compiled(call(R"({"properties": {"a": {"pattern": "\\b"}}})")),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("tool f: parameters: ")));
}

TEST(ToolCallsTest, SourcesThatAreWrongAreRefusedByMember) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "want an object"},
      {"{", "tool calls: "},
      {Source(kHermes, "after", 1), "text: want"},
      {Source(kHermes, "none", 0), "max_calls: want"},
      {Source(kHermes, "none", kMaxToolCalls + 1), "max_calls: want"},
      {Source(kHermes, "none", 1, "[]"), "tools: want"},
      {Source(kHermes, "none", 1, "{}"), "tools: want"},
      {Source(kHermes, "none", 1, "[3]"), "tools: want"},
      {Source(kHermes, "none", 1, R"([{"name": "f"}])"), "tool f: want"},
      {Source(kHermes, "none", 1, R"([{"name": "", "parameters": {}}])"),
       "tools: want names"},
      {Source(kHermes, "none", 1, R"([{"name": "a\"b", "parameters": {}}])"),
       "tools: want names"},
      {Source(kHermes, "none", 1,
              absl::StrCat(R"([{"name": ")", std::string(257, 'n'),
                           R"(", "parameters": {}}])")),
       "tools: want names"},
      {Source(kHermes, "none", 1, R"([{"name": "f", "parameters": {}},
                                      {"name": "f", "parameters": {}}])"),
       "tool f: there are two"},
      {Source(absl::StrCat(kHermes, ", \"other\": 1"), "none", 1),
       "other: want no such member"},
      {Source(R"("begin": "")", "none", 1), "before_name: want"},
      {Source(absl::StrCat(kHermes, ", \"end\": 3"), "none", 1), "end: want"},
      {Source(absl::StrCat(kHermes, ", \"end\": [{\"control\": \"\"}]"), "none",
              1),
       "end: want"},
      {Source(absl::StrCat(kHermes, ", \"end\": [[]]"), "none", 1),
       "end: want"},
      {Source(absl::StrCat(kHermes, ", \"opener\": \"\""), "before", 1),
       "opener: want"}};
  for (const auto& [source, message] : cases) {
    EXPECT_THAT(
        Compiled(source).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << source;
  }
}

TEST(ToolCallsTest, ManyToolsWithLargeSchemasAreBounded) {
  std::string tools = "[";
  for (int i = 0; i < 1024; ++i) {
    absl::StrAppend(&tools, i > 0 ? "," : "", R"({"name": "tool_)", i,
                    R"(", "parameters": {"type": "object", "properties": {)");
    for (int k = 0; k < 4; ++k) {
      absl::StrAppend(&tools, k > 0 ? "," : "", "\"p", i, "_", k,
                      R"(": {"type": "string", "maxLength": )", k + 3, "}");
    }
    absl::StrAppend(&tools, "}}}");
  }
  tools += "]";
  const std::string source = Source(kHermes, "before", 128, tools);
  EXPECT_TRUE(
      Accepts(source, HermesCall("tool_1023", R"({"p1023_0": "abc"})")));
  EXPECT_FALSE(Accepts(
      source, HermesCall("tool_1023", R"({"p1022_0": 1, "p1023_0": ""})")));
  CompileLimits few;
  few.grammar.rules = 100;
  EXPECT_THAT(
      Compile({Constraint::Kind::kToolCalls, source, {}}, few),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("rules")));
}

}  // namespace
}  // namespace foretoken::grammar
