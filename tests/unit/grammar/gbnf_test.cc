#include "common/grammar/gbnf.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/grammar/automaton.h"
#include "common/grammar/grammar.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const Grammar> Built(absl::string_view text) {
  GrammarBuilder builder;
  const auto root = AddGbnf(text, builder);
  EXPECT_THAT(root, IsOk()) << text;
  if (!root.ok()) return nullptr;
  auto grammar = std::move(builder).Build(*root);
  EXPECT_THAT(grammar, IsOk()) << text;
  if (!grammar.ok()) return nullptr;
  return std::make_shared<const Grammar>(*std::move(grammar));
}

void ExpectTexts(absl::string_view grammar,
                 const std::vector<std::string>& valid,
                 const std::vector<std::string>& invalid) {
  const auto built = Built(grammar);
  ASSERT_NE(built, nullptr);
  Automaton automaton(built);
  for (const std::string& text : valid) {
    EXPECT_TRUE(automaton.Matches(text)) << grammar << "\n on " << text;
  }
  for (const std::string& text : invalid) {
    EXPECT_FALSE(automaton.Matches(text)) << grammar << "\n on " << text;
  }
}

absl::Status Refused(absl::string_view text) {
  GrammarBuilder builder;
  return AddGbnf(text, builder).status();
}

TEST(GbnfTest, LiteralsAndClassesAreCodePoints) {
  ExpectTexts(R"(root ::= "a\"\\\n\x41\u00e9\U0001F600" [a-cx-] [^a-z\]] .)",
              {"a\"\\\nA\u00E9\xF0\x9F\x98\x80-\u00E9\n",
               "a\"\\\nA\u00E9"
               "\xF0\x9F\x98\x80"
               "bA."},
              {"a\"\\\nA\u00E9\xF0\x9F\x98\x80"
               "da.",
               "a\"\\\nA\u00E9\xF0\x9F\x98\x80"
               "b]."});
}

TEST(GbnfTest, QuantifiersBindToTheItemBeforeThem) {
  ExpectTexts(
      "root ::= \"ab\"* \"c\"+ [d]? (\"e\" | \"f\"){2} \"g\"{1,} "
      "\"h\" {0,2} \"i\"{,1}",
      {"ababcdefg", "ceegghh", "cceegi"},
      {"abdefg", "cefe", "ceeghhh", "ceegii", "aceeg"});
}

TEST(GbnfTest, LinesEndRulesOutsideParentheses) {
  ExpectTexts(
      "# a comment\n"
      "root ::=\n  one | # first\n  two\n"
      "  | (\n \"3\"\n # inside\n \"4\" \n)\r\n\n"
      "one ::= \"1\" # last\n"
      "two-b ::= \"2\"\n"
      "two ::= two-b",
      {"1", "2", "34"}, {"", "12", "3"});
}

TEST(GbnfTest, EmptyAlternativesMatchTheEmptyText) {
  ExpectTexts("root ::= \"a\" ws \"b\"\nws ::= | \" \" ws\n",
              {"ab", "a b", "a   b"}, {"a", "a\tb"});
  ExpectTexts("root ::= \"\" (\"a\" | )\n", {"", "a"}, {"b"});
}

TEST(GbnfTest, RulesMayUseThemselvesAnywhere) {
  ExpectTexts("root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"},
              {"", "((x)", "()"});
  ExpectTexts("root ::= root \"+\" root | [0-9]+", {"1", "12+3+4"},
              {"", "1+", "+1"});
  ExpectTexts("root ::= list*\nlist ::= \"[\" (list (\",\" list){0,2})? \"]\"",
              {"", "[]", "[[],[[]]][]"}, {"[", "[,]", "[[],[],[],[]]"});
}

TEST(GbnfTest, JsonOfLlamaCpp) {
  ExpectTexts(R"GBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)GBNF",
              {"{}", "{\"a\": [1, 2.5e1, {\"b\": null}], \"c\": \"\\u00e9\"}"},
              {"", "[]", "{\"a\"}", "{\"a\": 01}", "{\"a\": \"\n\"}"});
}

TEST(GbnfTest, WhatIsRegularIsOneTerminal) {
  GrammarBuilder builder;
  const auto regular = AddGbnf(
      "root ::= (digit | hex)+ \".\" digit{2,3}\n"
      "digit ::= [0-9]\nhex ::= \"x\" digit\nunused ::= unused \"a\"",
      builder);
  ASSERT_THAT(regular, IsOk());
  EXPECT_GE(*regular, 0);  // a terminal

  const auto mixed = Built(
      "root ::= \"a\" ws root ws \"b\" ws | \"c\" | \"d\"\n"
      "ws ::= [ ]*");
  ASSERT_NE(mixed, nullptr);
  ASSERT_EQ(mixed->nonterminals.size(), 1u);
  EXPECT_EQ(mixed->nonterminals[0].alternatives.size(), 2u);
}

TEST(GbnfTest, RulesThatDoubleDoNotGrowWithoutBound) {
  std::string text = "root ::= r40\nr0 ::= \"a\"?\n";
  for (int i = 1; i <= 40; ++i) {
    absl::StrAppend(&text, "r", i, " ::= r", i - 1, " r", i - 1, "\n");
  }
  GrammarBuilder builder;
  EXPECT_THAT(AddGbnf(text, builder), IsOk());
  EXPECT_LT(builder.regexes().bytes(), 4 << 20);

  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 30'000; ++i) {
    absl::StrAppend(&chain, "r", i, " ::= r", i + 1, "\n");
  }
  absl::StrAppend(&chain, "r30000 ::= \"a\"\n");
  EXPECT_THAT(Refused(chain), IsOk());
}

TEST(GbnfTest, RefusalsNameTheLine) {
  const struct {
    const char* text;
    const char* what;
  } kCases[] = {
      {"", "rule \"root\" is not defined"},
      {"rot ::= \"a\"", "rule \"root\" is not defined"},
      {"root ::= \"a\"\n  b", "line 2: want '::='"},
      {"root ::= a\n\nb ::= a", "line 1: rule \"a\" is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"",
       "line 2: rule \"root\" is defined twice"},
      {"root ::= \"a", "line 1: a text without its closing '\"'"},
      {"root ::= [a", "line 1: '[' without ']'"},
      {"root ::= []", "line 1: a class without characters"},
      {"root ::= [z-a]", "line 1: a range that ends before it begins"},
      {"root ::= (\"a\"\n", "line 1: '(' without ')'"},
      {"root ::= \"a\")", "line 1: unexpected ')'"},
      {"root ::= *", "line 1: unexpected '*'"},
      {"root ::= \"a\"{2,1}", "its maximum below its minimum"},
      {"root ::= \"a\"{100001}", "more than 100000 repetitions"},
      {"root ::= \"a\"{,}", "want {m}, {m,}, {m,n} or {,n}"},
      {"root ::= \"a\"{x}", "want {m}, {m,}, {m,n} or {,n}"},
      {"root ::= \"a\"***********", "too many quantifiers"},
      {"root ::= \"\\q\"", "line 1: an unknown escape"},
      {"root ::= \"\\x4\"", "line 1: a bad escape"},
      {"root ::= \"\\uD800\"", "line 1: an escape that is not a character"},
      {"root ::= \"\\U00110000\"", "an escape that is not a character"},
      {"root ::= <think>", "line 1: a token (<...>) is not supported"},
      {"root ::= 'a'", "line 1: unexpected '''"},
      {"\n\nroot ::= \"\xFF\"", "line 3: text that is not UTF-8"},
      {"::= \"a\"", "line 1: want a rule's name"},
      {"root : \"a\"", "line 1: want '::='"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(Refused(test.text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("grammar: "), HasSubstr(test.what))))
        << test.text;
  }
}

TEST(GbnfTest, DepthLengthAndMemoryAreBounded) {
  const auto nested = [](int levels) {
    return absl::StrCat("root ::= ", std::string(levels, '('), "root",
                        std::string(levels, ')'), " | \"a\"");
  };
  EXPECT_THAT(Refused(nested(250)), IsOk());
  EXPECT_THAT(Refused(nested(251)), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("250 levels")));
  EXPECT_THAT(Refused(std::string((1 << 20) + 1, '#')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want at most 1048576")));
  GrammarBuilder small({.regex_bytes = 1000});
  EXPECT_THAT(
      AddGbnf("root ::= \"" + std::string(1000, 'a') + "\"", small),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1000 bytes")));
}

}  // namespace
}  // namespace foretoken::grammar
