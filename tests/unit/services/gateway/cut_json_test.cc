#include "services/gateway/core/cut_json.h"

#include <string>

#include "common/base/json.h"
#include "gtest/gtest.h"

namespace foretoken::gateway {
namespace {

TEST(CutJsonTest, AnObjectStaysAsItIs) {
  for (const char* text :
       {"{}", R"({"z": 1, "a": [true, null]})", " { \"a\" : \"b\" } "}) {
    EXPECT_EQ(WholeJsonObject(text), text);
  }
}

TEST(CutJsonTest, WhatIsWholeOfACutObjectStays) {
  EXPECT_EQ(WholeJsonObject(R"({"a": 1, "b)"), R"({"a": 1})");
  EXPECT_EQ(WholeJsonObject(R"({"a": 1, "b": "tex)"), R"({"a": 1})");
  EXPECT_EQ(WholeJsonObject(R"({"a": 1, "b": "t\")"), R"({"a": 1})");
  EXPECT_EQ(WholeJsonObject(R"({"a": [1, 2)"), R"({"a": [1]})");
  EXPECT_EQ(WholeJsonObject(R"({"a": {"b": tru)"), R"({"a": {}})");
  EXPECT_EQ(WholeJsonObject(R"({"a": {"b": true}, )"), R"({"a": {"b": true}})");
  // The number may go on.
  EXPECT_EQ(WholeJsonObject(R"({"a": 1)"), "{}");
  EXPECT_EQ(WholeJsonObject(R"({"a": "{[\"", "b": [)"),
            R"({"a": "{[\"", "b": []})");
}

TEST(CutJsonTest, EveryBeginningOfAnObjectBecomesOneOfItsParts) {
  const std::string text =
      R"({"a": "x\"\\", "b": [1, [], {"c": -2.5e3}, "]}"], "d": {"e": null},)"
      R"( "f": false})";
  const Json whole = Json::parse(text);
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::string cut = WholeJsonObject(text.substr(0, size));
    ASSERT_TRUE(Json::accept(cut)) << cut;
    const Json part = Json::parse(cut);
    ASSERT_TRUE(part.is_object()) << cut;
    for (const auto& [key, value] : part.items()) {
      ASSERT_TRUE(whole.contains(key)) << cut;
      if (value.is_structured()) continue;
      EXPECT_EQ(value, whole[key]) << cut;
    }
  }
  EXPECT_EQ(Json::parse(WholeJsonObject(text)), whole);
}

TEST(CutJsonTest, WhatBeginsNoObjectIsAnEmptyOne) {
  for (const char* text :
       {"", "x", "[1", "]", "}{", "{]", R"({"a" 1, )", R"({1: 2})", "\"{"}) {
    EXPECT_EQ(WholeJsonObject(text), "{}") << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_TRUE(Json::accept(WholeJsonObject("{\"a\": " + deep)));
}

}  // namespace
}  // namespace foretoken::gateway
