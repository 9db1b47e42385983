#include "common/text/chat/tool_call_parser.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/text/chat/arguments_reader.h"
#include "gmock/gmock.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

// Joined deltas of an answer: content, and "name|arguments" of each call.
struct Joined {
  std::string content;
  std::vector<std::string> calls;
  std::vector<std::string> ids;
  // Bytes of the content before each call.
  std::vector<size_t> places;
  bool cut_off = false;

  void Add(const AnswerDelta& delta) {
    delta.InOrder(
        [&](absl::string_view text) { absl::StrAppend(&content, text); },
        [&](const ToolCallDelta& call) { AddCall(call); });
  }
  void AddCall(const ToolCallDelta& call) {
    if (!call.id.empty()) {
      EXPECT_EQ(call.index, static_cast<int>(ids.size()));
      EXPECT_FALSE(call.name.empty());
      ids.push_back(call.id);
      calls.push_back(call.name + "|");
      places.push_back(content.size());
    }
    ASSERT_EQ(call.index, static_cast<int>(ids.size()) - 1);
    EXPECT_EQ(places.back(), content.size()) << "text within a call";
    calls.back() += call.arguments;
  }
  bool operator==(const Joined&) const = default;
};

const ToolNames& Offered() {
  static const auto* const names = new ToolNames{
      "brave_search", "code_interpreter", "f", "g", "get_x", "get_y"};
  return *names;
}

Joined Parse(ToolCallForm form, const std::vector<std::string>& pieces,
             const ToolNames& offered = Offered()) {
  const auto parser = ToolCallParser::Create(form, /*id_seed=*/7, offered);
  Joined joined;
  for (const std::string& piece : pieces) joined.Add(parser->Add(piece));
  joined.Add(parser->Finish());
  joined.cut_off = parser->cut_off();
  EXPECT_EQ(parser->calls(), static_cast<int>(joined.calls.size()));
  return joined;
}

struct Case {
  ToolCallForm form;
  std::string text;
  std::string content;
  std::vector<std::string> calls;
};

constexpr ToolCallForm kHermes = ToolCallForm::kHermes;
constexpr ToolCallForm kMistral = ToolCallForm::kMistral;
constexpr ToolCallForm kLlama3 = ToolCallForm::kLlama3;

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {ToolCallForm::kNone,
       "<tool_call>{\"name\": \"f\"}",
       "<tool_call>{\"name\": \"f\"}",
       {}},

      // Hermes.
      {kHermes, "", "", {}},
      {kHermes, "  just text \n", "  just text \n", {}},
      {kHermes,
       "1 < 2 <tool <tool_calls> <tool_call",
       "1 < 2 <tool <tool_calls> <tool_call",
       {}},
      {kHermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, {}], "
       "\"s\": \"a}\\\"b</tool_call>\"}}\n</tool_call>",
       "",
       {"f|{\"x\": [1, {}], \"s\": \"a}\\\"b</tool_call>\"}"}},
      {kHermes,
       "Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
       "\n<tool_call>{\"arguments\":{\"y\":2},\"id\":[1],\"name\":\"g\"}"
       "</tool_call>\n",
       "Let me see.",
       {"f|{}", "g|{\"y\":2}"}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
       "\\\"\\u00e9\\ud83d\\ude00\\\"}\"}</tool_call>",
       "",
       {"f|{\"a\": \"\u00e9\U0001f600\"}"}},
      {kHermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "", {"f|{}"}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>x",
       "x",
       {"f|{}"}},
      // A brace too many, one too few, none at all, and no end tag.
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{}}}</tool_call> so",
       " so",
       {"f|{}"}},
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}</tool_call>b",
       "b",
       {"f|{\"a\":1}"}},
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1\n<tool_call>"
       "{\"name\":\"g\",\"arguments\":{}}</tool_call>",
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1\n",
       {"g|{}"}},
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n<tool_call>"
       "{\"name\":\"g\",\"arguments\":{}}",
       "",
       {"f|{}", "g|{}"}},
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b",
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b",
       {}},
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":\"\"}</tool_call>",
       "",
       {"f|{}"}},
      // Line breaks in strings, which JSON wants escaped.
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\": \"a\nb\tc\x01\"}}"
       "</tool_call>",
       "",
       {"f|{\"s\": \"a\\nb\\tc\\u0001\"}"}},
      // What is no call is content.
      {kHermes,
       "<tool_call>f(x)</tool_call>",
       "<tool_call>f(x)</tool_call>",
       {}},
      {kHermes, "<tool_call>{\"name\": 1}", "<tool_call>{\"name\": 1}", {}},
      {kHermes, "So \n<tool_call> no", "So \n<tool_call> no", {}},
      {kMistral, "So \n[TOOL_CALLS] no!", "So \n[TOOL_CALLS] no!", {}},
      {kHermes,
       "<tool_call> {\"name\": \"f\"",
       "<tool_call> {\"name\": \"f\"",
       {}},
      {kHermes,
       "<tool_call>{}<tool_call>{\"name\":\"g\"}</tool_call>",
       "<tool_call>{}",
       {"g|{}"}},

      // Mistral.
      {kMistral, "text [TOOL] [", "text [TOOL] [", {}},
      {kMistral,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}}, "
       "{\"name\": \"g\", \"arguments\": {}, \"id\": \"abcdefghi\"}]",
       "",
       {"f|{\"x\": 1}", "g|{}"}},
      {kMistral,
       "Sure.\n[TOOL_CALLS]get_x[ARGS]{\"a\": [\"]\"]}[TOOL_CALLS]get_y"
       "{\"b\": 2} ",
       "Sure.",
       {"get_x|{\"a\": [\"]\"]}", "get_y|{\"b\": 2}"}},
      {kMistral, "[TOOL_CALLS]f[CALL_ID]123456789[ARGS] {}", "", {"f|{}"}},
      {kMistral,
       "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}} and",
       " and",
       {"f|{}"}},
      {kMistral,
       "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\"",
       "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\"",
       {}},
      {kMistral, "[TOOL_CALLS][]", "[TOOL_CALLS][]", {}},
      {kMistral, "[TOOL_CALLS]what now?", "[TOOL_CALLS]what now?", {}},
      {kMistral, "[TOOL_CALLS]f[OTHER]{}", "[TOOL_CALLS]f[OTHER]{}", {}},
      {kMistral, "[TOOL_CALLS]", "[TOOL_CALLS]", {}},
      {kMistral, "[TOOL_CALLS]f{\"a\": 'b'}", "[TOOL_CALLS]f{\"a\": 'b'}", {}},

      // Llama 3.
      {kLlama3, "Plain { text }", "Plain { text }", {}},
      {kLlama3,
       " {\"name\": \"f\", \"parameters\": {\"x\": \"1\"}}",
       "",
       {"f|{\"x\": \"1\"}"}},
      {kLlama3,
       "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
       "{\"name\": \"g\", \"parameters\": {}}",
       "",
       {"f|{}", "g|{}"}},
      {kLlama3,
       "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}",
       "",
       {"f|{\"x\": 1}"}},
      {kLlama3,
       "I look. <|python_tag|>brave_search.call(query=\"a \\\"b\\\"\")",
       "I look.",
       {"brave_search|{\"query\": \"a \\\"b\\\"\"}"}},
      {kLlama3,
       "<|python_tag|>f.call(a='x', b = -1.5, c=True, d=None)\n",
       "",
       {"f|{\"a\": \"x\", \"b\": -1.5, \"c\": true, \"d\": null}"}},
      {kLlama3, "<|python_tag|>f.call()", "", {"f|{}"}},
      {kLlama3,
       "<|python_tag|>import math\nprint(\"\\t\")",
       "",
       {"code_interpreter|{\"code\": \"import math\\nprint(\\\"\\\\t\\\")\"}"}},
      {kLlama3,
       "<|python_tag|>f.call(g(1))",
       "",
       {"code_interpreter|{\"code\": \"f.call(g(1))\"}"}},
      {kLlama3,
       "<|python_tag|>x.c",
       "",
       {"code_interpreter|{\"code\": \"x.c\"}"}},
      {kLlama3,
       "<|python_tag|>{\"a\": 1}",
       "",
       {"code_interpreter|{\"code\": \"{\\\"a\\\": 1}\"}"}},
      // An answer may be JSON.
      {kLlama3,
       "{\"name\": \"Ada\", \"age\": 36}",
       "{\"name\": \"Ada\", \"age\": 36}",
       {}},
      {kLlama3, "{\"name\": \"Ada\"}", "{\"name\": \"Ada\"}", {}},
      {kLlama3, "{\"parameters\": {}}", "{\"parameters\": {}}", {}},
      {kLlama3,
       "{\"name\": \"\", \"parameters\": {}}",
       "{\"name\": \"\", \"parameters\": {}}",
       {}},
      {kLlama3, "{}<|python_tag|>f.call()", "{}", {"f|{}"}},
      {kLlama3, "{\"name\": \"f\", \"parameters\": {}} done", "done", {"f|{}"}},
      {kLlama3,
       "{\"name\": \"f\", \"parameters\": {\"a\"",
       "{\"name\": \"f\", \"parameters\": {\"a\"",
       {}},
  };
  return *cases;
}

TEST(ToolCallParserTest, TellsCallsFromContent) {
  for (const Case& c : Cases()) {
    const Joined joined = Parse(c.form, {c.text});
    EXPECT_EQ(joined.content, c.content) << c.text;
    EXPECT_EQ(joined.calls, c.calls) << c.text;
  }
}

TEST(ToolCallParserTest, CutsOfTheTextMakeNoDifference) {
  for (const Case& c : Cases()) {
    const Joined whole = Parse(c.form, {c.text});
    std::vector<std::string> bytes;
    for (size_t i = 0; i < c.text.size(); ++i) {
      bytes.push_back(c.text.substr(i, 1));
      for (size_t j = i; j <= c.text.size(); ++j) {
        ASSERT_EQ(Parse(c.form, {c.text.substr(0, i), c.text.substr(i, j - i),
                                 c.text.substr(j)}),
                  whole)
            << c.text << " cut at " << i << " and " << j;
      }
    }
    ASSERT_EQ(Parse(c.form, bytes), whole) << c.text;
  }
}

// The attacks: a model that was talked into other names.
TEST(ToolCallParserTest, NamesThatAreNotOfferedAreText) {
  const ToolNames offered = {"f"};
  for (const std::string name :
       {"g", "F", "f ", "", "<script>alert(1)</script>", "code_interpreter"}) {
    for (const auto& [form, text] :
         {std::pair(kHermes,
                    absl::StrCat("<tool_call>{\"name\": \"", name,
                                 "\", \"arguments\": {}}</tool_call>")),
          std::pair(kHermes, absl::StrCat("<tool_call>{\"arguments\": {}, "
                                          "\"name\": \"",
                                          name, "\"}</tool_call>")),
          std::pair(kMistral, absl::StrCat("[TOOL_CALLS]", name, "{\"a\": 1}")),
          std::pair(kMistral, absl::StrCat("[TOOL_CALLS][{\"name\": \"", name,
                                           "\", \"arguments\": {}}]")),
          std::pair(kLlama3, absl::StrCat("{\"name\": \"", name,
                                          "\", \"parameters\": {}}")),
          std::pair(kLlama3, absl::StrCat("<|python_tag|>", name, ".call()")),
          std::pair(kLlama3, absl::StrCat("<|python_tag|>{\"name\": \"", name,
                                          "\", \"parameters\": {}}"))}) {
      if (form == kMistral && name == "f ") continue;  // spaces may follow
      const Joined joined = Parse(form, {text}, offered);
      EXPECT_THAT(joined.calls, SizeIs(0)) << text;
      EXPECT_EQ(joined.content, text);
      EXPECT_FALSE(joined.cut_off) << text;
    }
  }
}

TEST(ToolCallParserTest, ArgumentsThatAreNoJsonObjectAreText) {
  for (const std::string arguments : {"{\"a\": }",
                                      "{\"a\": 1,}",
                                      "{'a': 1}",
                                      "{a: 1}",
                                      "[1]",
                                      "1",
                                      "true",
                                      "nul",
                                      "\"a\"",
                                      "\"{\\\"a\\\": \"",
                                      "{\"a\": 01}",
                                      "{\"a\": 1.}",
                                      "{\"a\": -}",
                                      "{\"a\": 1e}",
                                      "{\"a\": \"\\x\"}",
                                      "{\"a\": \"\\u12g4\"}",
                                      "{\"a\": tru}",
                                      "{\"a\" 1}",
                                      "{\"a\": 1]",
                                      "{\"a\": [1}",
                                      "{1: 2}"}) {
    const std::string hermes =
        absl::StrCat("<tool_call>{\"name\": \"f\", \"arguments\": ", arguments,
                     "}</tool_call>");
    const Joined joined = Parse(kHermes, {hermes});
    EXPECT_THAT(joined.calls, SizeIs(0)) << arguments;
    EXPECT_EQ(joined.content, hermes);
    EXPECT_FALSE(joined.cut_off);
    if (arguments[0] != '{') continue;
    const std::string mistral = absl::StrCat("[TOOL_CALLS]f", arguments);
    EXPECT_EQ(Parse(kMistral, {mistral}).content, mistral);
    const std::string llama =
        absl::StrCat("{\"name\": \"f\", \"parameters\": ", arguments, "}");
    EXPECT_EQ(Parse(kLlama3, {llama}).content, llama);
  }
  for (const std::string arguments :
       {"{}", "{ }", "{\"a\": [0, -0.5e+3, 1E5, 10.25]}",
        "{\"\\u00e9\\n\": {\"b\": [true, false, null, [], {}]}}",
        "{\"a\"\n:\t1 , \"b\" : \"}\"}"}) {
    const Joined joined =
        Parse(kHermes, {absl::StrCat("<tool_call>{\"name\": \"f\", "
                                     "\"arguments\": ",
                                     arguments, "}</tool_call>")});
    EXPECT_THAT(joined.calls, ElementsAre("f|" + arguments));
    EXPECT_TRUE(ParseJson(arguments).ok()) << arguments;
  }
}

TEST(ToolCallParserTest, LongArgumentsAreStreamedAndMayBeCutOff) {
  const std::string head = "{\"x\": \"";
  const std::string body(ArgumentsReader::kMaxWholeBytes, 'y');
  const std::pair<ToolCallForm, std::string> beginnings[] = {
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": "},
      {kMistral, "[TOOL_CALLS]f"},
      {kMistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": "},
      {kLlama3, "{\"name\": \"f\", \"parameters\": "}};
  for (const auto& [form, beginning] : beginnings) {
    const auto parser = ToolCallParser::Create(form, 1, Offered());
    EXPECT_TRUE(parser->Add(beginning + head).empty());
    const AnswerDelta begun = parser->Add(body);
    ASSERT_THAT(begun.tool_calls, SizeIs(1)) << beginning;
    EXPECT_EQ(begun.tool_calls[0].name, "f");
    EXPECT_EQ(begun.tool_calls[0].arguments, head + body);
    const AnswerDelta more = parser->Add("z");
    ASSERT_THAT(more.tool_calls, SizeIs(1));
    EXPECT_EQ(more.tool_calls[0].id, "");
    EXPECT_EQ(more.tool_calls[0].arguments, "z");
    EXPECT_TRUE(parser->cut_off());
    EXPECT_EQ(parser->Add("\"}").tool_calls.at(0).arguments, "\"}");
    EXPECT_FALSE(parser->cut_off());
    EXPECT_TRUE(parser->Finish().empty());

    const std::string cut = beginning + head + body;
    EXPECT_TRUE(Parse(form, {cut}).cut_off) << beginning;
    EXPECT_THAT(Parse(form, {cut}).calls, ElementsAre("f|" + head + body));
    EXPECT_TRUE(Parse(form, {cut, "\" oops"}).cut_off) << beginning;
  }
  // A later call that is whole does not mend it.
  EXPECT_TRUE(Parse(kHermes, {"<tool_call>{\"name\":\"f\",\"arguments\":",
                              head + body + "\"<tool_call>{\"name\":\"g\"}"})
                  .cut_off);
}

TEST(ToolCallParserTest, StreamsContentAndWholeCallsAsTheyCome) {
  const auto parser = ToolCallParser::Create(kHermes, 1, Offered());
  EXPECT_EQ(parser->Add("Let me").content, "Let me");
  EXPECT_EQ(parser->Add(" look.\n<tool").content, " look.");
  EXPECT_TRUE(parser->Add("_call>\n{\"name\": \"f\", ").empty());
  EXPECT_TRUE(parser->Add("\"arguments\": {\"x\": 1").empty());
  const AnswerDelta call = parser->Add("}");
  ASSERT_THAT(call.tool_calls, SizeIs(1));
  EXPECT_EQ(call.tool_calls[0].name, "f");
  EXPECT_EQ(call.tool_calls[0].arguments, "{\"x\": 1}");
  EXPECT_TRUE(parser->Add("}\n</tool_call>").empty());
  EXPECT_TRUE(parser->Finish().empty());
}

TEST(ToolCallParserTest, IdsHaveTheFormThatTemplatesAccept) {
  const std::string hermes =
      "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  const Joined two = Parse(kHermes, {hermes, hermes});
  for (const std::string& id : two.ids) {
    EXPECT_THAT(id, MatchesRegex("call_[0-9A-Za-z]{24}"));
  }
  EXPECT_THAT(std::set<std::string>(two.ids.begin(), two.ids.end()), SizeIs(2));
  EXPECT_EQ(Parse(kHermes, {hermes, hermes}).ids, two.ids);
  const auto other = ToolCallParser::Create(kHermes, 8, Offered())->Add(hermes);
  EXPECT_NE(other.tool_calls.at(0).id, two.ids[0]);
  EXPECT_THAT(Parse(kMistral, {"[TOOL_CALLS]f{}"}).ids.at(0),
              MatchesRegex("[0-9A-Za-z]{9}"));
}

TEST(ToolCallParserTest, ArgumentsOfAnyStringAreJson) {
  std::string text;
  for (int c = 1; c < 128; ++c) text.push_back(static_cast<char>(c));
  text += "\u00e9\U0001f600";
  const Joined joined = Parse(kLlama3, {"<|python_tag|>" + text});
  const std::string prefix = "code_interpreter|";
  ASSERT_TRUE(absl::StartsWith(joined.calls.at(0), prefix));
  const Json arguments =
      ParseJson(joined.calls[0].substr(prefix.size())).value();
  EXPECT_EQ(arguments.at("code").get<std::string>(),
            // White space behind the tag is not of the code; the first byte
            // is no space.
            text);
}

TEST(ToolCallParserTest, HoldsBackABoundedPart) {
  const size_t more = ToolCallParser::kMaxHeldBytes + 100;
  const std::pair<ToolCallForm, std::string> beginnings[] = {
      {kHermes, "<tool_call>"},
      {kHermes, "<tool_call>{\"x\": \""},
      {kHermes, "<tool_call>{\"arguments\": {\"x\": \""},
      {kMistral, "[TOOL_CALLS]"},
      {kMistral, "[TOOL_CALLS][{\"x\": \""},
      {kMistral, "[TOOL_CALLS]f[CALL_ID]"},
      {kLlama3, ""},
      {kLlama3, "{\"x\": \""}};
  for (const auto& [form, beginning] : beginnings) {
    const auto parser = ToolCallParser::Create(form, 1, Offered());
    const std::string text = beginning + std::string(more, ' ');
    std::string content = parser->Add(text).content;
    EXPECT_GE(content.size() + ToolCallParser::kMaxHeldBytes, text.size())
        << beginning;
    content += parser->Finish().content;
    EXPECT_EQ(content, text) << beginning;
  }
  // A call of a built-in tool that does not end is code.
  const Joined code =
      Parse(kLlama3, {"<|python_tag|>f.call(" + std::string(more, 'x')});
  EXPECT_TRUE(absl::StartsWith(code.calls.at(0), "code_interpreter|{\"code\""));
}

TEST(ToolCallParserTest, NamesAreBounded) {
  const std::string name(ToolCallParser::kMaxNameBytes + 1, 'f');
  for (const auto& [form, text] :
       {std::pair(kHermes, "<tool_call>{\"name\": \"" + name + "\"}"),
        std::pair(kHermes, "<tool_call>{\"" + name + "\": 1, \"name\": \"f\"}"),
        std::pair(kMistral, "[TOOL_CALLS]" + name + "{}"),
        std::pair(kLlama3,
                  "{\"name\": \"" + name + "\", \"parameters\": {}}")}) {
    const Joined joined = Parse(form, {text});
    EXPECT_THAT(joined.calls, SizeIs(0));
    EXPECT_EQ(joined.content, text);
  }
}

TEST(ToolCallParserTest, CallsBeyondTheLimitAreContent) {
  const std::pair<ToolCallForm, std::string> calls[] = {
      {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"},
      {kMistral, "[TOOL_CALLS]f{}"},
      {kLlama3, "{\"name\":\"f\",\"parameters\":{}};"}};
  for (const auto& [form, call] : calls) {
    std::string text;
    for (int i = 0; i < ToolCallParser::kMaxCalls + 2; ++i) text += call;
    const Joined joined = Parse(form, {text});
    EXPECT_THAT(joined.calls, SizeIs(ToolCallParser::kMaxCalls));
    EXPECT_EQ(joined.content, call + call);
  }
}

}  // namespace
}  // namespace foretoken
