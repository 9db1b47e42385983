#include "common/grammar/thinking.h"

#include <memory>
#include <set>
#include <string>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Kind = Constraint::Kind;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kDigit[] = R"({"enum": [1, 2]})";
constexpr char kCalls[] = R"({
    "opener": "<tool_call>", "begin": "", "end": "", "separator": "\n",
    "before_name": "<tool_call>\n{\"name\": \"",
    "before_arguments": "\", \"arguments\": ",
    "after_arguments": "}\n</tool_call>", "max_calls": 2,
    "tools": [{"name": "f", "parameters": {"additionalProperties": false}}],
    "text": )";
constexpr char kCall[] =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

Thinking Tags(bool opened, bool is_control = false) {
  return {{"<think>", is_control}, {"</think>", is_control}, opened};
}

Constraint Constrained(Kind kind, const std::string& source, bool opened,
                       std::vector<std::string> choices = {}) {
  return {kind, source, std::move(choices), Tags(opened)};
}

bool Accepts(const Constraint& constraint, absl::string_view text) {
  const auto grammar = Compile(constraint);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return grammar.ok() && Automaton(*grammar).Matches(text);
}

TEST(ThinkingTest, AnAnswerMayThinkFirst) {
  const Constraint constraint = Constrained(Kind::kJsonSchema, kDigit, false);
  for (const std::string& text : std::vector<std::string>{
           "1", "<think></think>2", "<think>\nI see.\n</think>\n\n1",
           "<think><think> 1 </thin \u00e9 </think>1",
           absl::StrCat("<think>", std::string(5000, 'a'), "</think>2")}) {
    EXPECT_TRUE(Accepts(constraint, text)) << text;
  }
  for (const std::string& text : std::vector<std::string>{
           "", "3", "\n<think></think>1", "\n1", "<think>", "<think>1",
           "<think>1</think>", "<think>1</think>3", "1</think>1",
           "a<think></think>1", "<think></think>1</think>1",
           "<think></think><think></think>1", "<think>\xFF</think>1",
           "<think>\xC3</think>1",
           absl::StrCat("<think></think>", std::string(99, '\n'), "1")}) {
    EXPECT_FALSE(Accepts(constraint, text)) << text;
  }
}

TEST(ThinkingTest, AnOpenedThinkingHasToBeClosed) {
  const Constraint constraint = Constrained(Kind::kJsonSchema, kDigit, true);
  for (const std::string text :
       {"</think>1", "I see.\n</think>\n\n2", "<think>a</think>1"}) {
    EXPECT_TRUE(Accepts(constraint, text)) << text;
  }
  for (const std::string text : {"1", "a</think>", "a</think>3",
                                 "a</think>1</think>1", "</think></think>1"}) {
    EXPECT_FALSE(Accepts(constraint, text)) << text;
  }
}

// The reader would drop white space behind the tag, and take an opening tag for
// thinking.
TEST(ThinkingTest, ExpressionsAreNarrowedToWhatTheReaderLeaves) {
  const Constraint any =
      Constrained(Kind::kRegex, "\\s*(yes|<think>b*)", /*opened=*/false);
  for (const std::string text :
       {"yes", "  yes", "<think>a</think>yes", "<think>a</think>\n\nyes",
        "<think>a</think><think>bb"}) {
    EXPECT_TRUE(Accepts(any, text)) << text;
  }
  for (const std::string text : {"<think>b", " <think>", "<think>yes"}) {
    EXPECT_FALSE(Accepts(any, text)) << text;
  }
  const Constraint spaced = Constrained(Kind::kRegex, " yes", false);
  EXPECT_TRUE(Accepts(spaced, " yes"));
  EXPECT_FALSE(Accepts(spaced, "<think></think> yes"));
  EXPECT_THAT(Compile(Constrained(Kind::kRegex, " yes", true)),
              StatusIs(kInvalid, HasSubstr("unsatisfiable")));
  const Constraint choice = Constrained(Kind::kChoice, "", true, {"yes", "no"});
  EXPECT_TRUE(Accepts(choice, "a</think>\nno"));
  EXPECT_FALSE(Accepts(choice, "no"));
}

TEST(ThinkingTest, ChoicesThatBeginWithWhiteSpaceKeepIt) {
  for (const bool opened : {false, true}) {
    const Constraint choice =
        Constrained(Kind::kChoice, "", opened, {" yes", "no", "<think>"});
    EXPECT_TRUE(KeepsSpaceAfterThinking(choice));
    EXPECT_EQ(Accepts(choice, " yes"), !opened);
    EXPECT_FALSE(Accepts(choice, "<think>"));
    for (const char* text : {" yes", "no"}) {
      EXPECT_TRUE(Accepts(
          choice, absl::StrCat(opened ? "" : "<think>", "a</think>", text)));
      EXPECT_FALSE(Accepts(
          choice, absl::StrCat(opened ? "" : "<think>", "a</think>\n", text)));
    }
  }
}

// The reader would take the text for thinking.
TEST(ThinkingTest, FreeTextBeforeATagDoesNotBeginWithTheOpeningTag) {
  const auto tagged = [](const char* format) {
    return Constrained(
        Kind::kStructuralTag,
        absl::StrCat(R"({"type": "structural_tag", "format": )", format, "}"),
        false);
  };
  const Constraint triggered = tagged(R"({"type": "triggered_tags",
      "triggers": ["<f="], "tags": [{"begin": "<f=a>", "end": "</f>",
      "content": {"type": "const_string", "value": "1"}}]})");
  for (const std::string text :
       {"", "a", "<f=a>1</f>", "a <f=a>1</f> <think>", "<f=a>1</f><think>",
        "<think>a</think>", "<think> <f=</think>b<f=a>1</f>"}) {
    EXPECT_TRUE(Accepts(triggered, text)) << text;
  }
  for (const std::string text : {"<think>a", " <think>", "<think>a<f=a>1</f>",
                                 "<thi", "<think>a</think><f="}) {
    EXPECT_FALSE(Accepts(triggered, text)) << text;
  }
  const Constraint sequence = tagged(R"({"type": "sequence", "elements": [
      {"type": "any_text"}, {"type": "const_string", "value": "nk>"},
      {"type": "any_text"}]})");
  EXPECT_TRUE(Accepts(sequence, "ank>"));
  EXPECT_TRUE(Accepts(sequence, "<think></think>nk>"));
  EXPECT_FALSE(Accepts(sequence, "<think>"));
  EXPECT_FALSE(Accepts(sequence, "<think>nk>a"));
}

TEST(ThinkingTest, TextsOfGrammarsKeepTheirWhiteSpace) {
  const Constraint grammar =
      Constrained(Kind::kGrammar, "root ::= \" \"? \"yes\"", true);
  EXPECT_TRUE(Accepts(grammar, "a</think>yes"));
  EXPECT_TRUE(Accepts(grammar, "a</think> yes"));
  EXPECT_FALSE(Accepts(grammar, "a</think>  yes"));
  EXPECT_FALSE(Accepts(grammar, "a</think>\nyes"));
}

TEST(ThinkingTest, CallsFollowTheThinking) {
  const auto calls = [](const char* text, bool opened) {
    return Constrained(Kind::kToolCalls, absl::StrCat(kCalls, text, "}"),
                       opened);
  };
  const Constraint before = calls("\"before\"", false);
  for (const std::string& text : std::vector<std::string>{
           "So.", kCall, absl::StrCat("So.\n", kCall), "a <think>",
           absl::StrCat("<think>", kCall, "</think>\n\n", kCall),
           absl::StrCat("<think><tool_call></think>So. ", kCall),
           "<think>a</think>"}) {
    EXPECT_TRUE(Accepts(before, text)) << text;
  }
  // The reader sees no calls in thinking that is not closed.
  for (const std::string& text : std::vector<std::string>{
           "<think>a", absl::StrCat("<think>a\n", kCall),
           absl::StrCat(" <think>", kCall), "<think>a</think><tool_call>"}) {
    EXPECT_FALSE(Accepts(before, text)) << text;
  }
  const Constraint required = calls("\"none\"", true);
  EXPECT_TRUE(Accepts(required, absl::StrCat("a</think>\n", kCall)));
  EXPECT_FALSE(Accepts(required, kCall));
  EXPECT_FALSE(Accepts(required, absl::StrCat("a</think>So. ", kCall)));
}

TEST(ThinkingTest, TagsMayBeSpecialTokensAlone) {
  auto vocabulary = std::make_shared<Vocabulary>();
  TokenId id = 0;
  for (const char* text : {"1", "<think>", "</think>", "</thi", "nk>", "\n"}) {
    vocabulary->Add(id++, text, text, TokenKind::kText);
  }
  const TokenId open = id++, close = id++, end = id++;
  vocabulary->Add(open, "<think>", "", TokenKind::kSpecial);
  vocabulary->Add(close, "</think>", "", TokenKind::kSpecial);
  vocabulary->Add(end, "</s>", "", TokenKind::kSpecial);
  const auto words = std::make_shared<TokenVocabulary>(vocabulary);
  Constraint constraint = Constrained(Kind::kJsonSchema, kDigit, false);
  constraint.thinking = Tags(/*opened=*/false, /*is_control=*/true);
  const auto grammar = Compile(constraint);
  FORETOKEN_ASSERT_OK(grammar);
  ConstrainedText text(std::make_shared<LiveGrammar>(*grammar, words), {end});
  const auto allowed = [&] {
    const auto masks = text.MaskRows({0}, {-1});
    EXPECT_THAT(masks, testing::IsOk());
    std::vector<TokenId> tokens;
    for (TokenId token = 0; masks.ok() && token < id; ++token) {
      if (HasToken(*masks->at(0), token)) tokens.push_back(token);
    }
    return tokens;
  };
  EXPECT_THAT(allowed(), ElementsAre(0, open));
  text.Append({open});
  // No text spells the closing tag, and the end needs it.
  EXPECT_THAT(allowed(), ElementsAre(0, 1, 3, 4, 5, close));
  text.Append({0, 3});
  EXPECT_THAT(allowed(), ElementsAre(0, 1, 3, 5, close));
  text.Append({close});
  EXPECT_THAT(allowed(), ElementsAre(0, 5));
  text.Append({5, 0});
  FORETOKEN_EXPECT_OK(text.status());
  EXPECT_TRUE(text.complete());
}

TEST(ThinkingTest, TagsThatAreWrongAreRefused) {
  Constraint constraint = Constrained(Kind::kJsonObject, "", true);
  constraint.thinking.open.text = "";  // not needed
  FORETOKEN_EXPECT_OK(Compile(constraint));
  constraint.thinking.opened = false;
  EXPECT_THAT(Compile(constraint), StatusIs(kInvalid, HasSubstr("open: want")));
  constraint.thinking = Tags(true);
  constraint.thinking.close.text =
      "b" + std::string(Thinking::kMaxTagBytes - 1, 'a');
  FORETOKEN_EXPECT_OK(Compile(constraint));
  constraint.thinking.close.text += 'a';
  EXPECT_THAT(Compile(constraint),
              StatusIs(kInvalid, HasSubstr("close: want")));
  constraint.thinking.close.text = "aba";
  EXPECT_THAT(Compile(constraint),
              StatusIs(kInvalid, HasSubstr("the first of them once")));
  constraint.thinking.close.text = "\xFF";
  EXPECT_THAT(Compile(constraint),
              StatusIs(kInvalid, HasSubstr("close: want")));
}

TEST(ThinkingTest, EachHasAKeyOfItsOwn) {
  std::vector<Constraint> constraints;
  for (const bool opened : {false, true}) {
    constraints.push_back(Constrained(Kind::kRegex, "a", opened));
    constraints.push_back(constraints.back());
    constraints.back().thinking.close.is_control = true;
    constraints.push_back(constraints.back());
    constraints.back().thinking.open.text = "a'8:";
  }
  constraints.push_back({Kind::kRegex, "a", {}});
  // Would be equal if tags and source were only joined.
  constraints.push_back(
      {Kind::kRegex, ":a", {}, {{"a", false}, {"b", false}, false}});
  constraints.push_back(
      {Kind::kRegex, "a", {}, {{"a", false}, {"b:", false}, false}});
  std::set<std::string> keys;
  for (const Constraint& constraint : constraints) {
    keys.insert(ConstraintKey(constraint));
    EXPECT_EQ(ConstraintKey(constraint), ConstraintKey(Constraint(constraint)));
  }
  EXPECT_EQ(keys.size(), constraints.size());
}

}  // namespace
}  // namespace foretoken::grammar
