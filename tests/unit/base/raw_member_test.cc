#include "common/base/raw_member.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

TEST(RawMemberTest, MembersAreFoundAsTheyAreSpelled) {
  EXPECT_EQ(RawMember(R"({"a": [1, "]\""], "b": {"c": "}"} , "d":1e5})", "a"),
            R"([1, "]\""])");
  EXPECT_EQ(RawMember(R"({"a": [1], "b": {"c": "}"} , "d":1e5})", "b"),
            R"({"c": "}"})");
  EXPECT_EQ(RawMember(R"( {"a":[1],"d" : 1e5 })", "d"), "1e5");
  EXPECT_EQ(RawMember(R"({"a": {"d": 1}})", "d"), "");
  EXPECT_EQ(RawMember(R"({"a": "d", "x": "a"})", "d"), "");
  EXPECT_EQ(RawMember(R"({"d": 1, "\u0064": "x\\"})", "d"), R"("x\\")");
  EXPECT_EQ(RawMember("{}", "d"), "");
}

TEST(RawMemberTest, AMarkOfTheByteOrderIsSkipped) {
  EXPECT_EQ(RawMember("\xEF\xBB\xBF{\"a\": 1}", "a"), "1");
}

TEST(RawMemberTest, ElementsAreFoundAsTheyAreSpelled) {
  EXPECT_THAT(RawElements(R"( [1 , "a,]\"" ,{"b": [2]},[ ], null ] )"),
              ElementsAre("1", R"("a,]\"")", R"({"b": [2]})", "[ ]", "null"));
  EXPECT_THAT(RawElements("[]"), ElementsAre());
  EXPECT_THAT(RawElements(" [ ] "), ElementsAre());
}

}  // namespace
}  // namespace foretoken
