#include "common/text/chat/fenced_calls.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text/chat/tool_call_parser.h"
#include "gmock/gmock.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

constexpr ToolCallForm kForms[] = {ToolCallForm::kLlama3, ToolCallForm::kHermes,
                                   ToolCallForm::kMistral};

const ToolNames& Offered() {
  static const auto* const names = new ToolNames{"f", "g"};
  return *names;
}

// Joined deltas: content, and "name|arguments" of each call.
struct Joined {
  std::string content;
  std::vector<std::string> calls;
  std::vector<std::string> ids;
  bool cut_off = false;
  bool operator==(const Joined&) const = default;
};

Joined Parse(ToolCallForm form, const std::vector<std::string>& pieces,
             const ToolNames& offered = Offered()) {
  const auto parser = ToolCallParser::Create(form, /*id_seed=*/7, offered);
  Joined joined;
  const auto add = [&](const AnswerDelta& delta) {
    joined.content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (!call.id.empty()) {
        EXPECT_EQ(call.index, static_cast<int>(joined.calls.size()));
        joined.ids.push_back(call.id);
        joined.calls.push_back(call.name + "|");
      }
      ASSERT_EQ(call.index, static_cast<int>(joined.calls.size()) - 1);
      joined.calls.back() += call.arguments;
    }
  };
  for (const std::string& piece : pieces) add(parser->Add(piece));
  add(parser->Finish());
  joined.cut_off = parser->cut_off();
  EXPECT_EQ(parser->calls(), static_cast<int>(joined.calls.size()));
  return joined;
}

struct Case {
  std::string text;
  std::string content;
  std::vector<std::string> calls;
};

constexpr char kCallOfF[] = "{\"name\": \"f\", \"arguments\": {\"x\": 1}}";

const std::vector<Case>& Calls() {
  static const auto* const cases = new std::vector<Case>{
      {absl::StrCat("```json\n", kCallOfF, "\n```"), "", {"f|{\"x\": 1}"}},
      {absl::StrCat("```\n", kCallOfF, "\n```\n"), "", {"f|{\"x\": 1}"}},
      {absl::StrCat("\n  ``` json \r\n\n", kCallOfF, "  \r\n  ```\r\n"),
       "",
       {"f|{\"x\": 1}"}},
      {absl::StrCat("```json\n", kCallOfF, "```"), "", {"f|{\"x\": 1}"}},
      {absl::StrCat("I call `f` now:\n\n```json\n", kCallOfF,
                    "\n```\n\nThen I see."),
       "I call `f` now:\n\nThen I see.",
       {"f|{\"x\": 1}"}},
      {"```json\n{\"arguments\": {}, \"id\": [1], \"name\": \"g\"}\n```",
       "",
       {"g|{}"}},
      {"```json\n{\"name\": \"f\", \"parameters\": {\"a\": \"```\"}}\n```",
       "",
       {"f|{\"a\": \"```\"}"}},
      {absl::StrCat("```json\n[", kCallOfF,
                    ",\n {\"name\": \"g\", \"arguments\": {}}]\n```"),
       "",
       {"f|{\"x\": 1}", "g|{}"}},
      {absl::StrCat("```json\n", kCallOfF, "\n```\n```json\n", kCallOfF,
                    "\n```"),
       "",
       {"f|{\"x\": 1}", "f|{\"x\": 1}"}},
      // A block that is no call ends before one that is.
      {absl::StrCat("```python\nf(x=1)\n```\n```json\n", kCallOfF, "\n```"),
       "```python\nf(x=1)\n```\n",
       {"f|{\"x\": 1}"}},
      {absl::StrCat("```json\n{\"name\": \"oops\n```\n```json\n", kCallOfF,
                    "\n```"),
       "```json\n{\"name\": \"oops\n```\n",
       {"f|{\"x\": 1}"}},
      {absl::StrCat("```x``` and\n```json\n", kCallOfF, "\n```"),
       "```x``` and",
       {"f|{\"x\": 1}"}},
  };
  return *cases;
}

const std::vector<std::string>& Texts() {
  static const auto* const texts = new std::vector<std::string>{
      "",
      "plain `f` text \n",
      "```",
      "```json",
      "```json\n",
      "``\n",
      // Other languages, and what only looks like a fence.
      absl::StrCat("```python\n", kCallOfF, "\n```\n"),
      absl::StrCat("```jsonc\n", kCallOfF, "\n```\n"),
      absl::StrCat("```js\n", kCallOfF, "\n```"),
      absl::StrCat("```json5\n", kCallOfF, "\n```"),
      absl::StrCat("See ```json\n", kCallOfF, "\n```"),
      absl::StrCat("``json\n", kCallOfF, "\n``"),
      absl::StrCat("```json ", kCallOfF, "```"),
      absl::StrCat("````\n```json\n", kCallOfF, "\n```\n````\n"),
      absl::StrCat("```markdown\n ````json\n", kCallOfF, "\n ````x\n"),
      // The text between two blocks stands in neither.
      absl::StrCat("```python\npass\n```\n", kCallOfF, "\n```\n"),
      absl::StrCat("```json\n{}\n```\n", kCallOfF, "\n```\n"),
      absl::StrCat("```json\n{\"a\": \"b\n```\n", kCallOfF, "\n```\n"),
      // Other names, and JSON that is no call.
      "```json\n{\"name\": \"h\", \"arguments\": {}}\n```\n",
      "```json\n{\"name\": \"F\", \"arguments\": {}}\n```\n",
      "```json\n{\"name\": \"f\"}\n```",
      "```json\n{\"arguments\": {}}\n```",
      "```json\n{\"name\": \"f\", \"arguments\": [1]}\n```",
      "```json\n{\"name\": \"f\", \"arguments\": {\"a\": }}\n```",
      "```json\n{\"name\": [\"f\"], \"arguments\": {}}\n```",
      "```json\n[]\n```",
      "```json\n\"f\"\n```",
      absl::StrCat("```json\n[", kCallOfF, ",]\n```"),
      absl::StrCat("```json\n[", kCallOfF,
                   ", {\"name\": \"h\", \"arguments\": {}}]\n```"),
      absl::StrCat("```json\n[[", kCallOfF, "]]\n```"),
      absl::StrCat("```json\n", kCallOfF, "\n", kCallOfF, "\n```"),
      absl::StrCat("```json\n", kCallOfF, "}\n```"),
      absl::StrCat("```json\n", kCallOfF, " // why\n```"),
      absl::StrCat("```json\ncall: ", kCallOfF, "\n```"),
      // Blocks without an end.
      absl::StrCat("```json\n", kCallOfF),
      absl::StrCat("```json\n", kCallOfF, "\n``"),
      absl::StrCat("```json\n", kCallOfF, "\n`\n``\n"),
      absl::StrCat("```json\n[", kCallOfF, "\n```\n"),
      "```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1\n```",
      "```json\n{\"name\": \"f\", \"arg",
  };
  return *texts;
}

TEST(FencedCallsTest, BlocksThatAreCallsOfOfferedToolsAreCallsBesideEveryForm) {
  for (const ToolCallForm form : kForms) {
    for (const Case& c : Calls()) {
      const Joined joined = Parse(form, {c.text});
      EXPECT_EQ(joined.calls, c.calls) << c.text;
      EXPECT_FALSE(joined.cut_off);
      EXPECT_EQ(joined.content, c.content) << c.text;
    }
  }
}

TEST(FencedCallsTest, EverythingElseStaysTextByteForByte) {
  for (const ToolCallForm form : kForms) {
    for (const std::string& text : Texts()) {
      const Joined joined = Parse(form, {text});
      EXPECT_EQ(joined.content, text);
      EXPECT_THAT(joined.calls, IsEmpty()) << text;
    }
  }
}

TEST(FencedCallsTest, CutsOfTheTextMakeNoDifference) {
  std::vector<std::string> texts = Texts();
  for (const Case& c : Calls()) texts.push_back(c.text);
  for (const ToolCallForm form : kForms) {
    for (const std::string& text : texts) {
      const Joined whole = Parse(form, {text});
      std::vector<std::string> bytes;
      for (size_t i = 0; i < text.size(); ++i) {
        bytes.push_back(text.substr(i, 1));
        for (size_t j = i; j <= text.size(); ++j) {
          ASSERT_EQ(Parse(form, {text.substr(0, i), text.substr(i, j - i),
                                 text.substr(j)}),
                    whole)
              << text << " cut at " << i << " and " << j;
        }
      }
      ASSERT_EQ(Parse(form, bytes), whole) << text;
    }
  }
}

TEST(FencedCallsTest, AnswersWithoutACallAreTheTextWhateverItIs) {
  const std::vector<std::string> parts = {"```",
                                          "`",
                                          "json",
                                          "\n",
                                          " ",
                                          "{\"name\": \"f\", ",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          "\"",
                                          "a",
                                          "\"arguments\": {}",
                                          "````",
                                          "\r",
                                          "<tool_call>",
                                          "</tool_call>"};
  std::minstd_rand random(1);
  int texts = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    const size_t count = random() % 12;
    for (size_t k = 0; k < count; ++k) text += parts[random() % parts.size()];
    const Joined joined = Parse(ToolCallForm::kHermes, {text});
    if (!joined.calls.empty()) continue;
    ASSERT_EQ(joined.content, text);
    ++texts;
  }
  EXPECT_GT(texts, 10'000);
}

// Calls without a fence; Llama's form reads them itself.
TEST(FencedCallsTest, AnAnswerOfCallsAloneNeedsNoFence) {
  const std::string call = "f|{\"x\": 1}";
  const std::string doubled = "{{\"name\": \"f\", \"arguments\": {\"x\": 1}}}";
  const Case cases[] = {
      {kCallOfF, "", {call}},
      {absl::StrCat("\n ", kCallOfF, " \n"), "", {call}},
      {doubled, "", {call}},
      {absl::StrCat(doubled, "\n", kCallOfF), "", {call, call}},
      {absl::StrCat("[", kCallOfF, ", ", doubled, "]"), "", {call, call}},
      {absl::StrCat(kCallOfF, "\nI wait."), "\nI wait.", {call}},
      {absl::StrCat("```json\n", doubled, "\n```"), "", {call}},
      {absl::StrCat("<tool_call>\n", doubled, "\n</tool_call>"), "", {call}},
      // No call, or not alone.
      {absl::StrCat(kCallOfF, " is a call."),
       absl::StrCat(kCallOfF, " is a call."),
       {}},
      {absl::StrCat(kCallOfF, "```"), absl::StrCat(kCallOfF, "```"), {}},
      {absl::StrCat("I call\n", kCallOfF),
       absl::StrCat("I call\n", kCallOfF),
       {}},
      {"{{\"name\": \"f\", \"arguments\": {}}",
       "{{\"name\": \"f\", \"arguments\": {}}",
       {}},
      {"{\"arguments\": {}, \"name\": \"f\"}",
       "{\"arguments\": {}, \"name\": \"f\"}",
       {}},
      {"{\"name\": \"h\", \"arguments\": {}}",
       "{\"name\": \"h\", \"arguments\": {}}",
       {}},
      {"[1]\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```",
       "[1]",
       {"f|{}"}},
  };
  for (const ToolCallForm form :
       {ToolCallForm::kHermes, ToolCallForm::kMistral}) {
    for (const Case& c : cases) {
      const bool tagged = c.text.starts_with("<tool_call>");
      if (tagged && form != ToolCallForm::kHermes) continue;
      std::vector<std::string> bytes;
      for (const char byte : c.text) bytes.push_back(std::string(1, byte));
      for (const auto& pieces : {std::vector<std::string>{c.text}, bytes}) {
        const Joined joined = Parse(form, pieces);
        EXPECT_EQ(joined.calls, c.calls) << c.text;
        EXPECT_EQ(joined.content, c.content) << c.text;
        EXPECT_FALSE(joined.cut_off) << c.text;
      }
    }
  }
}

TEST(FencedCallsTest, JsonThatIsNoCallIsNotHeldBack) {
  for (const std::string& start :
       {std::string("{\"city\""), std::string("[{\"a\""),
        absl::StrCat("{", std::string(70, ' '), "\"n")}) {
    const auto parser =
        ToolCallParser::Create(ToolCallForm::kHermes, 1, Offered());
    EXPECT_EQ(parser->Add(start).content, start);
  }
}

TEST(FencedCallsTest, WithoutToolsNothingIsACallOrHeldBack) {
  const ToolNames none;
  for (const ToolCallForm form : kForms) {
    const auto parser = ToolCallParser::Create(form, 1, none);
    const std::string text = absl::StrCat("```json\n", kCallOfF);
    EXPECT_EQ(parser->Add(text).content, text);
    EXPECT_EQ(parser->Add("\n```\n").content, "\n```\n");
    EXPECT_TRUE(parser->Finish().empty());
  }
}

TEST(FencedCallsTest, StandsBesideCallsInTheFormOfTheModel) {
  const std::string block = absl::StrCat("\n```json\n", kCallOfF, "\n```\n");
  const std::string hermes =
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  const Joined both =
      Parse(ToolCallForm::kHermes, {hermes, block, hermes, block});
  EXPECT_THAT(both.calls,
              ElementsAre("g|{}", "f|{\"x\": 1}", "g|{}", "f|{\"x\": 1}"));
  EXPECT_EQ(both.content, "");
  // A fence around a call in the model's form is content, and is closed by its
  // second half.
  const Joined around = Parse(ToolCallForm::kHermes,
                              {"```\n", hermes, "\n```\n", kCallOfF, "\n```"});
  EXPECT_THAT(around.calls, ElementsAre("g|{}"));
  EXPECT_EQ(around.content, absl::StrCat("```\n```\n", kCallOfF, "\n```"));
  // A fence in the arguments of a call is a part of them.
  const Joined inside = Parse(
      ToolCallForm::kHermes,
      {"<tool_call>{\"name\": \"g\", \"arguments\": {\"a\": \"\n```json\n{}"
       "\n```\n\"}}</tool_call>"});
  EXPECT_THAT(inside.calls, ElementsAre("g|{\"a\": \"\\n```json\\n{}"
                                        "\\n```\\n\"}"));
}

TEST(FencedCallsTest, TextIsHeldBackOnlyWhileItMayBeACall) {
  const auto parser =
      ToolCallParser::Create(ToolCallForm::kHermes, 1, Offered());
  EXPECT_EQ(parser->Add("Look:\n``").content, "Look:");
  EXPECT_EQ(parser->Add("`js").content, "");
  EXPECT_EQ(parser->Add("x").content, "\n```jsx");
  EXPECT_EQ(parser->Add("\n{\"name\": \"f\"").content, "\n{\"name\": \"f\"");
  EXPECT_EQ(parser->Add("\n```\n").content, "\n```");
  EXPECT_EQ(parser->Add("```json\n{\"name\": \"").content, "\n");
  EXPECT_EQ(parser->Add("h\"").content, "```json\n{\"name\": \"h\"");
  EXPECT_EQ(parser->Add(", \"a\"").content, ", \"a\"");
  EXPECT_EQ(parser->Add("\n```\n```\n{\"name\": \"f\", ").content, "\n```\n");
  EXPECT_TRUE(parser->Add("\"arguments\": {\"x\": 1}}\n``").empty());
  const AnswerDelta call = parser->Add("`");
  EXPECT_EQ(call.content, "");
  ASSERT_THAT(call.tool_calls, SizeIs(1));
  EXPECT_EQ(call.tool_calls[0].arguments, "{\"x\": 1}");
  EXPECT_TRUE(parser->Add("\n").empty());
  EXPECT_TRUE(parser->Finish().empty());
}

TEST(FencedCallsTest, LargeBlocksAreCallsUpToTheBoundAndTextBeyond) {
  const std::string head =
      "```json\n{\"name\": \"f\", \"arguments\": {\"x\": \"";
  const std::string tail = "\"}}\n```";
  const std::string fits(
      ToolCallParser::kMaxHeldBytes - head.size() - tail.size(), 'y');
  const std::string more(ToolCallParser::kMaxHeldBytes + 10, 'y');
  for (const ToolCallForm form : kForms) {
    EXPECT_THAT(Parse(form, {head + fits + tail}).calls,
                ElementsAre(absl::StrCat("f|{\"x\": \"", fits, "\"}")));
    const auto parser = ToolCallParser::Create(form, 1, Offered());
    std::string content = parser->Add(head + more).content;
    EXPECT_GE(content.size() + ToolCallParser::kMaxHeldBytes,
              head.size() + more.size());
    content += parser->Add(tail).content;
    content += parser->Finish().content;
    EXPECT_EQ(content, head + more + tail);
    EXPECT_EQ(parser->calls(), 0);
    // White space alone fills no memory either.
    const std::string spaces =
        "```json\n" + std::string(ToolCallParser::kMaxHeldBytes + 1, '\n');
    EXPECT_EQ(Parse(form, {spaces}).content, spaces);
    const std::string blanks = "```json" + std::string(100, ' ') + "\n{";
    EXPECT_EQ(Parse(form, {blanks}).content, blanks);
  }
}

TEST(FencedCallsTest, CallsBeyondTheLimitAreContent) {
  const std::string block = absl::StrCat("```\n", kCallOfF, "\n```");
  std::string text;
  for (int i = 0; i < ToolCallParser::kMaxCalls; ++i) text += block + "\n";
  for (const ToolCallForm form : kForms) {
    const Joined joined = Parse(form, {text, block});
    EXPECT_THAT(joined.calls, SizeIs(ToolCallParser::kMaxCalls));
    EXPECT_EQ(joined.content, "\n" + block);
  }
}

TEST(FencedCallsTest, IdsHaveTheFormThatTheModelsTemplateAccepts) {
  const std::string block = absl::StrCat("```\n", kCallOfF, "\n```\n");
  const Joined hermes = Parse(ToolCallForm::kHermes, {block, block});
  ASSERT_THAT(hermes.ids, SizeIs(2));
  EXPECT_THAT(hermes.ids[0], MatchesRegex("call_[0-9A-Za-z]{24}"));
  EXPECT_NE(hermes.ids[0], hermes.ids[1]);
  EXPECT_THAT(Parse(ToolCallForm::kMistral, {block}).ids.at(0),
              MatchesRegex("[0-9A-Za-z]{9}"));
}

}  // namespace
}  // namespace foretoken
