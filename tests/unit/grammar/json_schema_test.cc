#include "common/grammar/json_schema.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/grammar/automaton.h"
#include "common/grammar/grammar.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::grammar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Grammar> CompileSchema(absl::string_view schema,
                                      const JsonSchemaOptions& options = {}) {
  GrammarBuilder builder;
  const auto result = AddJsonSchema(schema, options, builder);
  if (!result.ok()) return result.status();
  return std::move(builder).Build(result->root);
}

// A schema, texts that it allows, and texts that it does not.
struct Case {
  std::string schema;
  std::vector<std::string> allowed;
  std::vector<std::string> refused;
};

void Check(const std::vector<Case>& cases, const JsonStyle& style = {}) {
  for (const Case& c : cases) {
    absl::StatusOr<Grammar> grammar = CompileSchema(c.schema, {.style = style});
    ASSERT_TRUE(grammar.ok()) << c.schema << ": " << grammar.status();
    Automaton automaton(std::make_shared<const Grammar>(*std::move(grammar)));
    for (const std::string& text : c.allowed) {
      EXPECT_TRUE(automaton.Matches(text)) << c.schema << " allows " << text;
    }
    for (const std::string& text : c.refused) {
      EXPECT_FALSE(automaton.Matches(text)) << c.schema << " refuses " << text;
    }
  }
}

constexpr JsonStyle kAnyOrder = {.schema_order = false};

TEST(JsonSchemaTest, ReadsTypes) {
  Check({
      {"true", {"null", "1", R"({"a": [1, {}]})", "[]", R"("x")"}, {"", "x"}},
      {"{}", {"null", "[true, false]"}, {"nul"}},
      {R"({"type": "null"})", {"null"}, {"0"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"null"}},
      {R"({"type": "integer"})", {"0", "-12"}, {"1.5", "\"1\""}},
      {R"({"type": "number"})", {"0", "-1.5", "1e3"}, {"01", "null"}},
      {R"({"type": "string"})", {R"("a\u00e9\n")"}, {"a", "\"a"}},
      {R"({"type": "array"})", {"[]", "[1, null]"}, {"{}", "[1,2]"}},
      {R"({"type": "object"})", {"{}", R"({"a": 1, "b": {}})"}, {"[]"}},
      {R"({"type": ["string", "null"]})", {"null", R"("")"}, {"1", "[]"}},
  });
}

TEST(JsonSchemaTest, TakesThreePointZeroForAnIntegerIfAskedTo) {
  Check({{R"({"type": "integer"})", {"3", "3.0"}, {"3.5"}},
         {R"({"enum": [1, 2.5]})", {"1", "1.0", "2.5"}, {"2"}},
         {R"({"$schema": "http://json-schema.org/draft-04/schema#",
              "type": "integer"})",
          {"3"},
          {"3.0"}}},
        {.integers_with_point = true});
}

TEST(JsonSchemaTest, ReadsEnumsAndConstants) {
  Check({
      {R"({"enum": ["a", "ab", 1, null, [1, "x"], {"k": true}]})",
       {R"("a")", R"("ab")", "1", "null", R"([1, "x"])", R"({"k": true})"},
       {R"("b")", "2", "[]", "{}", "[1]"}},
      {R"({"const": "say \"hi\""})", {R"("say \"hi\"")"}, {R"("say")"}},
      // Only values that everything else allows.
      {R"({"enum": ["a", "bb", 3, 4], "type": "string", "minLength": 2})",
       {R"("bb")"},
       {R"("a")", "3"}},
      {R"({"enum": [{"a": 1}, {"a": "x"}],
           "properties": {"a": {"type": "string"}}})",
       {R"({"a": "x"})"},
       {R"({"a": 1})"}},
      {R"({"enum": [1, 2, 3], "allOf": [{"enum": [2, 3, 4]}],
           "not": {"const": 3.0}})",
       {"2"},
       {"1", "3", "4"}},
  });
}

TEST(JsonSchemaTest, AllowsMembersOfConstantsInAnyOrderIfAskedTo) {
  Check({{R"({"const": {"a": 1, "b": [{"c": 2, "d": 3}]}})",
          {R"({"a": 1, "b": [{"c": 2, "d": 3}]})",
           R"({"b": [{"d": 3, "c": 2}], "a": 1})"},
          {R"({"a": 1})", R"({"a": 1, "b": [{"c": 2}]})"}}},
        kAnyOrder);
}

TEST(JsonSchemaTest, BoundsStrings) {
  Check({
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("a\né")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "^a+$", "maxLength": 2})",
       {R"("a")", R"("aa")"},
       {R"("aaa")", R"("")"}},
      {R"({"type": "string", "pattern": "b"})", {R"("abc")"}, {R"("ac")"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")"},
       {R"("2024-2-9")"}},
      {R"({"type": "string", "format": "of-nobody"})", {R"("x")"}, {"1"}},
      // Of strings only.
      {R"({"minLength": 2, "pattern": "x"})", {"1", R"("ax")"}, {R"("x")"}},
  });
}

TEST(JsonSchemaTest, BoundsNumbers) {
  Check({
      {R"({"type": "integer", "minimum": 3, "maximum": 11})",
       {"3", "11"},
       {"2", "12"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5})",
       {"0.1", "1.5"},
       {"0", "1.6", "-1"}},
      {R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true})",
       {"4"},
       {"3"}},
      {R"({"type": "integer", "multipleOf": 3})", {"0", "-9"}, {"4"}},
      {R"({"type": "number", "multipleOf": 0.5, "maximum": 2})",
       {"1.5", "-3"},
       {"1.2", "2.5"}},
      {R"({"not": {"type": "integer"}, "type": "number"})",
       {"1.5"},
       {"1", "\"x\""}},
      {R"({"type": "integer", "not": {"enum": [1, 2]}, "minimum": 0,
           "maximum": 3})",
       {"0", "3"},
       {"1", "2"}},
  });
}

TEST(JsonSchemaTest, ReadsArrays) {
  Check({
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1,
           "maxItems": 3})",
       {"[1]", "[1, 2, 3]"},
       {"[]", "[1, 2, 3, 4]", R"(["a"])"}},
      {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}],
           "items": {"const": 3}})",
       {"[]", "[1]", "[1, 2, 3, 3]"},
       {"[2]", "[1, 3]"}},
      {R"({"type": "array", "items": [{"const": 1}],
           "additionalItems": false})",
       {"[]", "[1]"},
       {"[1, 1]"}},
      {R"({"type": "array", "items": false})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "items": {"enum": ["a", "b", "c"]},
           "uniqueItems": true, "minItems": 2})",
       {R"(["a", "b"])", R"(["c", "b", "a"])"},
       {R"(["a", "a"])", R"(["a"])"}},
      {R"({"type": "array", "uniqueItems": true, "maxItems": 1})",
       {"[]", "[1]"},
       {"[1, 2]"}},
      {R"({"type": "array", "items": {"type": "integer"},
           "contains": {"minimum": 10}})",
       {"[10]", "[1, 11, 2]"},
       {"[]", "[1, 2]", R"([10, "a"])"}},
  });
}

TEST(JsonSchemaTest, ReadsObjectsInTheOrderOfTheirProperties) {
  const std::string schema = R"({
      "type": "object",
      "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
      "required": ["b"]})";
  Check({{schema,
          {R"({"b": null})", R"({"a": 1, "b": null})",
           R"({"b": null, "x": [1]})"},
          {"{}", R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": 1})",
           R"({"b": null, "a": "x"})"}}});
  Check({{schema,
          {R"({"b": null, "a": 1})", R"({"x": 1, "b": null})"},
          {R"({"b": null, "a": "x"})", R"({"b": null, "b": null})"}}},
        kAnyOrder);
}

TEST(JsonSchemaTest, ReadsRulesForOtherMembers) {
  Check({
      {R"({"type": "object", "additionalProperties": false})",
       {"{}"},
       {R"({"a": 1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a": 1, "b": 2})"},
       {R"({"a": "x"})"}},
      // Patterns that overlap, with each other and with a property.
      {R"({"type": "object", "properties": {"ab": {"minimum": 5}},
           "patternProperties": {"^a": {"type": "integer"},
                                 "b$": {"maximum": 9}},
           "additionalProperties": false})",
       {R"({"ab": 7})", R"({"ax": 12})", R"({"b": 3})", R"({"acb": 4})"},
       {R"({"ab": 3})", R"({"ab": 12})", R"({"ab": 5.5})", R"({"acb": 12})",
        R"({"acb": 1.5})", R"({"x": 1})"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-c]$"},
           "properties": {"a": {"const": 1}, "d": {}}})",
       {R"({"a": 1, "b": null})"},
       {R"({"d": 1})", R"({"a": 2})"}},
      {R"({"type": "object", "properties": {"a": false}})",
       {R"({"b": 1})"},
       {R"({"a": 1})"}},
      {R"({"type": "object", "required": ["z"],
           "additionalProperties": {"type": "null"}})",
       {R"({"z": null})"},
       {"{}", R"({"z": 1})"}},
  });
}

TEST(JsonSchemaTest, CountsMembers) {
  Check({
      {R"({"type": "object", "minProperties": 1})", {R"({"a": 1})"}, {"{}"}},
      {R"({"type": "object", "maxProperties": 1})",
       {"{}", R"({"a": 1})"},
       {R"({"a": 1, "b": 2})"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}},
           "additionalProperties": false, "minProperties": 2})",
       {R"({"a": 1, "c": 2})"},
       {R"({"b": 1})"}},
  });
}

TEST(JsonSchemaTest, ReadsDependencies) {
  Check({
      {R"({"type": "object", "properties": {"a": {}, "b": {}},
           "dependentRequired": {"a": ["b"]}})",
       {"{}", R"({"b": 1})", R"({"a": 1, "b": 1})"},
       {R"({"a": 1})"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}},
           "dependencies": {"a": {"properties": {"b": {"const": 1}}}}})",
       {R"({"b": 2})", R"({"a": 0, "b": 1})", R"({"a": 0})"},
       {R"({"a": 0, "b": 2})"}},
  });
}

TEST(JsonSchemaTest, MergesAllOfWithWhatIsBesideIt) {
  Check({
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}},
                     {"properties": {"a": {"minimum": 3}},
                      "required": ["a"]}],
           "type": "object"})",
       {R"({"a": 3})"},
       {"{}", R"({"a": 2})", R"({"a": "x"})"}},
      // additionalProperties knows the properties of its own schema only.
      {R"({"type": "object", "properties": {"a": {}},
           "allOf": [{"properties": {"b": {}},
                      "additionalProperties": false}]})",
       {"{}", R"({"b": 1})"},
       {R"({"a": 1})"}},
  });
}

TEST(JsonSchemaTest, CombinesAnyOfWithWhatIsBesideIt) {
  Check({
      {R"({"anyOf": [{"type": "integer"}, {"minimum": 2.5}]})",
       {"1", "3.5", "\"x\""},
       {"1.5"}},
      {R"({"type": "object",
           "properties": {"a": {"type": "integer"}, "b": {}},
           "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"},
       {"{}", R"({"a": "x"})"}},
  });
}

TEST(JsonSchemaTest, AllowsExactlyOneOfTheAlternatives) {
  Check({
      {R"({"oneOf": [{"type": "string"}, {"type": "null"}]})",
       {"null", R"("a")"},
       {"1"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number",
           "minimum": 2}]})",
       {"1", "2.5"},
       {"2", "3", "1.5"}},
      {R"({"type": "string",
           "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]})",
       {R"("ax")", R"("xb")"},
       {R"("ab")", R"("x")"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}},
           "additionalProperties": false,
           "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a": 1})", R"({"b": 1})"},
       {"{}", R"({"a": 1, "b": 1})"}},
      {R"({"oneOf": [
             {"type": "object", "properties": {"k": {"const": "x"},
              "v": {"type": "integer"}}, "required": ["k"]},
             {"type": "object", "properties": {"k": {"const": "y"}},
              "required": ["k"]}]})",
       {R"({"k": "x", "v": 1})", R"({"k": "y", "v": null})"},
       {R"({"k": "x", "v": null})", R"({"k": "z"})"}},
      // Closed objects that differ in their members.
      {R"({"oneOf": [
             {"type": "object", "properties": {"a": {}, "b": {}},
              "additionalProperties": false},
             {"type": "object", "properties": {"a": {}, "c": {}},
              "additionalProperties": false}]})",
       {R"({"b": 1})", R"({"a": 1, "c": 1})"},
       {"{}", R"({"a": 1})", R"({"b": 1, "c": 1})"}},
  });
}

TEST(JsonSchemaTest, Negates) {
  Check({
      {R"({"not": {"type": "string"}})", {"1", "{}"}, {R"("a")"}},
      {R"({"type": "string", "not": {"pattern": "^a"}})",
       {R"("b")", R"("")"},
       {R"("ab")"}},
      {R"({"type": "string", "not": {"enum": ["a", "b"]}})",
       {R"("c")", R"("ab")"},
       {R"("a")"}},
      {R"({"type": "object", "not": {"required": ["a", "b"]}})",
       {R"({"a": 1})", R"({"b": 1})", "{}"},
       {R"({"a": 1, "b": 1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}},
           "not": {"properties": {"a": {"minimum": 3}}}})",
       {R"({"a": 2})"},
       {"{}", R"({"a": 3})"}},
      // Of values that are listed, anything can be negated.
      {R"({"enum": [{"foo": 1}, {"foo": "x"}, []],
           "not": {"patternProperties": {"^f": {"type": "integer"}}}})",
       {R"({"foo": "x"})"},
       {R"({"foo": 1})", "[]"}},
  });
}

TEST(JsonSchemaTest, ReadsIfThenElse) {
  Check({
      {R"({"type": "object",
           "properties": {"k": {"enum": ["x", "y"]}, "v": {}},
           "if": {"properties": {"k": {"const": "x"}}, "required": ["k"]},
           "then": {"required": ["v"]},
           "else": {"properties": {"v": false}}})",
       {R"({"k": "x", "v": 1})", R"({"k": "y"})", "{}"},
       {R"({"k": "x"})", R"({"k": "y", "v": 1})", R"({"v": 1})"}},
      // Draft 4 does not know the keyword.
      {R"({"$schema": "http://json-schema.org/draft-04/schema#",
           "if": {"type": "integer"}, "then": {"minimum": 3}})",
       {"1"},
       {}},
  });
}

TEST(JsonSchemaTest, FollowsReferences) {
  Check({
      {R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}})",
       {"null"},
       {"1"}},
      {R"({"definitions": {"n": {"$anchor": "node", "type": "object",
             "properties": {"next": {"$ref": "#node"}},
             "additionalProperties": false}},
           "$ref": "#/definitions/n"})",
       {"{}", R"({"next": {"next": {}}})"},
       {R"({"next": 1})"}},
      {R"({"$id": "http://x.org/a/root.json", "$ref": "item.json",
           "$defs": {"i": {"$id": "/a/item.json",
                           "$ref": "#/$defs/x",
                           "$defs": {"x": {"const": 1}}}}})",
       {"1"},
       {"2"}},
      {R"({"type": "array", "items": {"$ref": "#"}})",
       {"[]", "[[], [[]]]"},
       {"[1]"}},
      // Beside a $ref, since 2019; hidden by it, before.
      {R"({"$ref": "#/$defs/i", "minimum": 3,
           "$defs": {"i": {"type": "integer"}}})",
       {"3"},
       {"2"}},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#",
           "$ref": "#/definitions/i", "minimum": 3,
           "definitions": {"i": {"type": "integer"}}})",
       {"2"},
       {"1.5"}},
  });
}

TEST(JsonSchemaTest, LeavesSpaceFreeIfAskedTo) {
  Check({{R"({"type": "object",
              "properties": {"a": {"type": "array",
                                   "items": {"type": "integer"}}}})",
          {"{}", "{ }", R"({"a":[1,2]})", "{\n \"a\" : [ 1 ,\t2 ] }"},
          {R"({"a": [1 2]})", R"({"a": 1})"}}},
        {.free_whitespace = true});
}

TEST(JsonSchemaTest, AddsAnyJson) {
  for (const bool object : {false, true}) {
    GrammarBuilder builder;
    const Symbol root = AddAnyJson({}, object, builder);
    absl::StatusOr<Grammar> grammar = std::move(builder).Build(root);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    Automaton automaton(std::make_shared<const Grammar>(*std::move(grammar)));
    EXPECT_TRUE(automaton.Matches(R"({"a": {"b": [null, "x"]}})"));
    EXPECT_EQ(automaton.Matches("[1]"), !object);
  }
}

TEST(JsonSchemaTest, RefusesByPathAndKeyword) {
  const struct {
    std::string schema;
    absl::StatusCode code;
    std::vector<std::string> words;
  } cases[] = {
      {"{", absl::StatusCode::kInvalidArgument, {"bad JSON"}},
      {"3", absl::StatusCode::kInvalidArgument, {"not a schema"}},
      {R"({"properties": {"a": {"type": "int"}}})",
       absl::StatusCode::kInvalidArgument,
       {"/properties/a: type: ", "int"}},
      {R"({"items": {"minLength": "3"}})",
       absl::StatusCode::kInvalidArgument,
       {"/items: minLength: "}},
      {R"({"$ref": "#/definitions/x"})",
       absl::StatusCode::kInvalidArgument,
       {"$ref: #/definitions/x"}},
      {R"({"$ref": "http://other.org/s.json"})",
       absl::StatusCode::kUnimplemented,
       {"$ref: http://other.org/s.json"}},
      {R"({"$ref": "#"})", absl::StatusCode::kInvalidArgument, {"cycle"}},
      {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})",
       absl::StatusCode::kInvalidArgument,
       {"cycle"}},
      {R"({"enum": [1, 2], "not": {"$ref": "#"}})",
       absl::StatusCode::kInvalidArgument,
       {"cycle"}},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})",
       absl::StatusCode::kInvalidArgument,
       {"unsatisfiable"}},
      {R"({"type": "object", "required": ["a"],
           "properties": {"a": {"enum": [1], "type": "string"}}})",
       absl::StatusCode::kInvalidArgument,
       {"unsatisfiable"}},
      {R"({"items": {"type": "array", "uniqueItems": true}})",
       absl::StatusCode::kUnimplemented,
       {"/items: uniqueItems: "}},
      {R"({"type": "string", "format": "regex"})",
       absl::StatusCode::kUnimplemented,
       {"format: regex"}},
      {R"({"properties": {"a": {"pattern": "(a)\\1"}}})",
       absl::StatusCode::kUnimplemented,
       {"/properties/a: pattern: "}},
      {R"({"type": "object", "minProperties": 2})",
       absl::StatusCode::kUnimplemented,
       {"minProperties: "}},
      {R"({"type": "array",
           "not": {"prefixItems": [{"type": "integer"}]}})",
       absl::StatusCode::kUnimplemented,
       {"/not: prefixItems: "}},
  };
  for (const auto& c : cases) {
    const absl::Status status = CompileSchema(c.schema).status();
    EXPECT_EQ(status.code(), c.code) << c.schema << ": " << status;
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word)) << c.schema;
    }
  }
}

// A keyword that cannot be expressed does not matter where it cannot apply.
TEST(JsonSchemaTest, IgnoresKeywordsOfOtherTypes) {
  Check({{R"({"type": "string", "uniqueItems": true, "contains": {}})",
          {R"("a")"},
          {"[]"}}});
}

TEST(JsonSchemaTest, ListsWhatItSkips) {
  GrammarBuilder builder;
  const auto result = AddJsonSchema(
      R"({"properties": {"a": {"uniqueItems": true},
                         "b": {"pattern": "(a)\\1"}}})",
      {.style = {}, .skip_unsupported = true}, builder);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->unchecked, ElementsAre("pattern", "uniqueItems"));
  EXPECT_TRUE(std::move(builder).Build(result->root).ok());
}

std::string Repeated(int count, const std::string& before,
                     const std::string& after) {
  std::string text;
  for (int i = 0; i < count; ++i) text += before;
  for (int i = 0; i < count; ++i) text += after;
  return text;
}

TEST(JsonSchemaTest, EndsSoonWhateverTheSchema) {
  std::vector<std::string> schemas = {
      // Deeper than any schema.
      Repeated(100'000, R"({"items": )", "}"),
  };
  // Every level doubles.
  std::string doubling = R"({"$ref": "#/$defs/d0", "$defs": {)";
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&doubling, R"("d)", i,
                    R"(": {"allOf": [{"$ref": "#/$defs/d)", i + 1,
                    R"("}, {"$ref": "#/$defs/d)", i + 1, R"("}]}, )");
  }
  absl::StrAppend(&doubling, R"("d60": {"type": "null"}}})");
  schemas.push_back(doubling);
  // A long chain of members, and of references.
  for (int i = 0; i < 20'000; ++i) {
    absl::StrAppend(
        &chain, R"("d)", i, R"(": {"type": "object", "required": ["a"],)",
        R"("properties": {"a": {"$ref": "#/$defs/d)", i + 1, R"("}}}, )");
  }
  absl::StrAppend(&chain, R"("d20000": {"type": "null"}}})");
  schemas.push_back(chain);
  // A product of alternatives.
  std::string product = R"({"allOf": [)";
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&product, i > 0 ? ", " : "",
                    R"({"anyOf": [{"required": ["a)", i,
                    R"("]}, {"required": ["b)", i, R"("]}]})");
  }
  schemas.push_back(product + "]}");
  // Many alternatives that overlap.
  std::string one_of = R"({"oneOf": [)";
  for (int i = 0; i < 10'000; ++i) {
    absl::StrAppend(&one_of, i > 0 ? ", " : "", R"({"minimum": )", i, "}");
  }
  schemas.push_back(one_of + "]}");
  for (const std::string& schema : schemas) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = CompileSchema(schema).status();
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(20))
        << schema.substr(0, 100);
    if (!status.ok()) {
      EXPECT_LT(status.message().size(), 1'000) << status;
    }
  }
}

TEST(JsonSchemaTest, TakesLargeObjectsAndEnums) {
  std::string properties = R"({"type": "object", "properties": {)";
  std::string values = R"({"enum": [)";
  for (int i = 0; i < 10'000; ++i) {
    const char* comma = i > 0 ? ", " : "";
    absl::StrAppend(&properties, comma, R"("p)", i, R"(": {"type": "null"})");
    absl::StrAppend(&values, comma, R"("v)", i, "\"");
  }
  Check({{properties + "}}", {R"({"p7": null})"}, {R"({"p7": 1})"}},
         {values + "]}", {R"("v9999")"}, {R"("v10000")"}}});
}

}  // namespace
}  // namespace foretoken::grammar
