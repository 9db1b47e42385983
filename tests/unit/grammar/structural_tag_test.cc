#include "common/grammar/structural_tag.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/grammar/automaton.h"
#include "common/grammar/compile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kSchema[] = R"({"type": "object", "required": ["x"],
    "properties": {"x": {"type": "integer"}}, "additionalProperties": false})";

absl::StatusOr<std::shared_ptr<const Grammar>> Compiled(
    const std::string& source) {
  return Compile({Constraint::Kind::kStructuralTag, source, {}});
}

// The texts that are not as expected.
std::vector<std::string> Wrong(const std::string& source, bool accepted,
                               const std::vector<std::string>& texts) {
  const auto grammar = Compiled(source);
  EXPECT_TRUE(grammar.ok()) << source << grammar.status();
  if (!grammar.ok()) return texts;
  Automaton automaton(*grammar);
  std::vector<std::string> wrong;
  for (const std::string& text : texts) {
    if (automaton.Matches(text) != accepted) wrong.push_back(text);
  }
  return wrong;
}
void ExpectTexts(const std::string& source,
                 const std::vector<std::string>& accepted,
                 const std::vector<std::string>& refused) {
  EXPECT_THAT(Wrong(source, true, accepted), ::testing::IsEmpty()) << source;
  EXPECT_THAT(Wrong(source, false, refused), ::testing::IsEmpty()) << source;
}

std::string Format(absl::string_view format) {
  return absl::StrCat(R"({"type": "structural_tag", "format": )", format, "}");
}
// Calls of f, which takes kSchema, and of g, which takes a number.
std::string TriggeredTags(absl::string_view more = "") {
  return Format(absl::StrCat(
      R"({"type": "triggered_tags", "triggers": ["<f="], "tags": [
          {"begin": "<f=f>", "end": "</f>",
           "content": {"type": "json_schema", "json_schema": )",
      kSchema, R"(}}, {"type": "tag", "begin": "<f=g>", "end": "</f>",
           "content": {"type": "json_schema", "json_schema":
                       {"type": "integer"}}}])",
      more, "}"));
}

const std::string kF = R"(<f=f>{"x": 1}</f>)";
const std::string kG = "<f=g>-7</f>";

TEST(StructuralTagTest, EveryTriggerBeginsATag) {
  const std::string structures = absl::StrCat(
      R"({"type": "structural_tag", "triggers": ["<f="], "structures": [
          {"begin": "<f=f>", "schema": )",
      kSchema, R"(, "end": "</f>"}, {"begin": "<f=g>", "end": "</f>",
          "schema": {"type": "integer"}}], "max_new_tokens": 2048})");
  for (const std::string& source : {structures, TriggeredTags()}) {
    ExpectTexts(source,
                {"", "Hello.", "1 < 2", "<f", "<f<f", "</f>", kF, kG, "a " + kF,
                 kF + " and " + kG + ".", kF + kG, "<" + kF, "<f" + kG,
                 kF + "<f", "\u00e9\n" + kG},
                {"<f=", "<f=h>1</f>", "<f=f", "<f=f>", R"(<f=f>{"x": "1"}</f>)",
                 R"(<f=f>{"x": 1})", R"(<f=f>{"x": 1}</f)", "<f=g>{}</f>",
                 kF + "<f=", "a<f=b" + kF, "\xFF", "\xC3", "<f=f>1</f>"});
  }
}

TEST(StructuralTagTest, TagsMayBeRequiredAndBeTheEnd) {
  ExpectTexts(TriggeredTags(R"(, "at_least_one": true)"),
              {kF, kF + " and " + kG, kG + "."}, {"", "a", "a" + kF, "<f="});
  ExpectTexts(TriggeredTags(R"(, "stop_after_first": true)"),
              {"", "a", kF, "a " + kG}, {kF + ".", kF + kG});
  ExpectTexts(
      TriggeredTags(R"(, "at_least_one": true, "stop_after_first": true)"),
      {kF, kG}, {"", "a", "a" + kF, kF + ".", kF + kG});
}

// "aab" has its trigger "aa" at once, so the text that it begins must follow.
TEST(StructuralTagTest, TheFirstTriggerCounts) {
  const std::string source = Format(
      R"({"type": "triggered_tags", "triggers": ["aa", "ba"], "tags": [
          {"begin": "aa1", "content": {"type": "const_string", "value": "x"},
           "end": "."},
          {"begin": "ba2", "content": {"type": "const_string", "value": "y"},
           "end": "."}]})");
  ExpectTexts(
      source,
      {"aa1x.", "ba2y.", "a", "ab", "bba2y.", "cabba2y.a", "aa1x.aa1x."},
      {"aaa1x.", "aaba2y.", "aa", "ba", "aba1x.", "ba2x.", "baa1x."});
}

TEST(StructuralTagTest, AnyTextInATagEndsAtItsFirstEnd) {
  ExpectTexts(Format(R"({"type": "tag", "begin": "<t>", "content":
                         {"type": "any_text"}, "end": "</t>"})"),
              {"<t></t>", "<t>a</t>", "<t></t</t>", "<t><t></t>"},
              {"", "<t>", "<t>a", "<t></t></t>", "<t></t>a", "a<t></t>"});
  ExpectTexts(Format(R"({"type": "tag", "begin": "<", "content":
                         {"type": "any_text"}, "end": [">", "/"]})"),
              {"<>", "<a/", "<\u00e9>"}, {"</>", "<", "<a>/", "<\xFF>"});
}

TEST(StructuralTagTest, FormatsAreMadeOfFormats) {
  ExpectTexts(
      Format(R"({"type": "sequence", "elements": [
          {"type": "tag", "begin": "<t>", "content": {"type": "any_text"},
           "end": "</t>\n"},
          {"type": "or", "elements": [
             {"type": "const_string", "value": "none"},
             {"type": "regex", "pattern": "[0-9]{2}"},
             {"type": "grammar", "grammar": "root ::= \"a\" root | \"b\""},
             {"type": "tag", "begin": "[", "end": "]", "content":
                {"type": "sequence", "elements": [
                   {"type": "const_string", "value": "x"},
                   {"type": "json_schema", "json_schema": {"const": [1, 2]}}
                ]}}]}]})"),
      {"<t>so</t>\nnone", "<t></t>\n12", "<t>1</t>\naab", "<t></t>\n[x[1, 2]]"},
      {"none", "<t></t>\n", "<t></t>\n1", "<t></t>\naa", "<t></t>\n[x]"});
  ExpectTexts(Format(R"({"type": "any_text"})"), {"", "a", "\u00e9"}, {"\xFF"});
}

TEST(StructuralTagTest, TagsMayHaveASeparator) {
  const auto source = [](absl::string_view more) {
    return Format(absl::StrCat(
        R"({"type": "tags_with_separator", "separator": ", ", "tags": [
            {"begin": "<", "content": {"type": "regex", "pattern": "[0-9]"},
             "end": ">"}])",
        more, "}"));
  };
  ExpectTexts(source(""), {"", "<1>", "<1>, <2>, <3>"},
              {"<1>,", "<1><2>", "<1>, ", "a", "<a>"});
  ExpectTexts(source(R"(, "at_least_one": true)"), {"<1>", "<1>, <2>"}, {""});
  ExpectTexts(source(R"(, "stop_after_first": true)"), {"", "<1>"},
              {"<1>, <2>"});
}

// As XGrammar's own classes write them.
TEST(StructuralTagTest, MembersThatAskForNothingAreTaken) {
  ExpectTexts(R"({"type": "structural_tag", "format": {"type": "tag",
      "begin": "<", "end": ">", "content": {"type": "json_schema",
      "json_schema": {"enum": [1]}, "style": "json"}}, "triggers": null})",
              {"<1>"}, {"<2>", "<1"});
  ExpectTexts(Format(R"({"type": "triggered_tags", "triggers": ["<"], "tags": [
      {"type": "tag", "begin": "<", "end": ">", "content":
         {"type": "any_text", "excludes": []}}],
      "excludes": [], "at_least_one": null, "stop_after_first": null})"),
              {"", "a<b>"}, {"<"});
}

std::string ManyTriggers(int count, size_t size, bool overlapping) {
  std::minstd_rand random(5);
  std::vector<std::string> triggers, tags;
  for (int i = 0; i < count; ++i) {
    std::string name = overlapping ? "ab" : "<";
    while (name.size() < size) {
      name += static_cast<char>('a' + random() % 26);
    }
    absl::StrAppend(&name, i, overlapping ? "a" : "=");
    tags.push_back(absl::StrCat(R"({"begin": ")", name,
                                R"(", "end": ">", "content":
           {"type": "const_string", "value": ")",
                                i, R"("}})"));
    triggers.push_back(absl::StrCat("\"", name, "\""));
  }
  return Format(absl::StrCat(R"({"type": "triggered_tags", "triggers": [)",
                             absl::StrJoin(triggers, ", "), R"(], "tags": [)",
                             absl::StrJoin(tags, ", "), "]}"));
}

TEST(StructuralTagTest, ManyTriggersAreAsExactAsOne) {
  const auto grammar = Compiled(ManyTriggers(256, 40, false));
  FORETOKEN_ASSERT_OK(grammar);
  Automaton automaton(*grammar);
  std::minstd_rand random(5);
  for (int i = 0; i < 256; ++i) {
    std::string name = "<";
    while (name.size() < 40) name += static_cast<char>('a' + random() % 26);
    absl::StrAppend(&name, i, "=");
    EXPECT_TRUE(automaton.Matches(absl::StrCat("a<b ", name, i, "> c")));
    EXPECT_FALSE(automaton.Matches(absl::StrCat(name, i + 1, ">")));
    EXPECT_FALSE(automaton.Matches(name));
  }
}

TEST(StructuralTagTest, FewTriggersMayOverlap) {
  FORETOKEN_EXPECT_OK(Compiled(ManyTriggers(16, 10, true)));
  EXPECT_THAT(Compiled(ManyTriggers(17, 10, true)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("format.triggers: overlapping triggers, want "
                                 "at most 16 of 1024 bytes")));
  EXPECT_THAT(
      Compiled(ManyTriggers(10, 200, true)),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("overlapping")));
}

TEST(StructuralTagTest, WhatIsNotATagIsRefusedByItsPlace) {
  const std::string deep = [] {
    std::string format = R"({"type": "any_text"})";
    for (int i = 0; i < 64; ++i) {
      format =
          absl::StrCat(R"({"type": "sequence", "elements": [)", format, "]}");
    }
    return format;
  }();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "structural tag: "},
      {"[]", "structural tag: want an object"},
      {R"({"type": "json_schema"})", "type: want structural_tag"},
      {R"({"type": "structural_tag"})", "structures is required"},
      {R"({"type": "structural_tag", "structures": []})",
       "triggers is required"},
      {R"({"type": "structural_tag", "structures": [], "triggers": ["a"]})",
       "structures: want an array of 1..1024 tags"},
      {R"({"type": "structural_tag", "structures": [{}], "triggers": []})",
       "triggers: want an array of 1..256 texts"},
      {R"({"type": "structural_tag", "structures": [{}], "triggers": [""]})",
       "triggers: want an array"},
      {R"({"type": "structural_tag", "structures": [{"begin": "a",
            "schema": {}}], "triggers": ["a"]})",
       "structures[0]: end is required"},
      {R"({"type": "structural_tag", "structures": [{"begin": "b", "end": "",
            "schema": {}}], "triggers": ["a"]})",
       "structures[0].begin: want a text that starts with one of the triggers"},
      {R"({"type": "structural_tag", "structures": [{"begin": "ab", "end": "",
            "schema": {}}], "triggers": ["a", "ab"]})",
       "structures[0].begin: "},
      {R"({"type": "structural_tag", "structures": [{"begin": "a", "end": "",
            "schema": {"type": 3}}], "triggers": ["a"]})",
       "structures[0].schema: "},
      {R"({"type": "structural_tag", "format": {}, "b": 1})",
       "structural tag: b is not supported"},
      {Format("3"), "format: want an object with a type"},
      {Format(R"({"type": "token"})"), "format: type: token is not supported"},
      {Format(R"({"type": "any_text", "excludes": ["a"]})"),
       "format: excludes is not supported"},
      {Format(R"({"type": "regex", "pattern": 1})"),
       "format.pattern: want a string"},
      {Format(R"({"type": "regex", "pattern": "("})"),
       "structural tag: format: "},
      {Format(R"({"type": "grammar", "grammar": "a ::= b"})"),
       "structural tag: format: grammar: "},
      {Format(R"({"type": "or", "elements": []})"),
       "format.elements: want an array of 1..1024 formats"},
      {Format(R"({"type": "sequence", "elements": [{"type": "any_text"}, 1]})"),
       "format.elements[1]: want an object"},
      {Format(R"({"type": "tag", "begin": "a", "end": "b", "content":
          {"type": "or", "elements": [{"type": "any_text"}]}})"),
       "format.content.elements[0]: free text within a tag"},
      {Format(R"({"type": "tag", "begin": "a", "end": "", "content":
          {"type": "any_text"}})"),
       "format.content: free text within a tag"},
      {Format(R"({"type": "triggered_tags", "triggers": ["a"], "tags": [
          {"begin": "a", "end": [], "content": {"type": "any_text"}}]})"),
       "format.tags[0].end: want an array"},
      {Format(R"({"type": "triggered_tags", "triggers": ["a", "bab"], "tags": [
          {"begin": "a", "end": ".", "content": {"type": "any_text"}}]})"),
       "format.triggers[1]: contains another trigger"},
      {Format(R"({"type": "triggered_tags", "triggers": ["a"], "tags": [
          {"type": "regex", "begin": "a", "end": ".", "content":
             {"type": "any_text"}}]})"),
       "format.tags[0].type: want tag"},
      {Format(R"({"type": "json_schema", "json_schema": {}, "style": "xml"})"),
       "format.style: want json"},
      {TriggeredTags(R"(, "at_least_one": 1)"),
       "format.at_least_one: want true or false"},
      {Format(deep), "more than 64 formats within each other"}};
  for (const auto& [source, message] : cases) {
    EXPECT_THAT(
        Compiled(source).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << source;
  }
}

}  // namespace
}  // namespace foretoken::grammar
