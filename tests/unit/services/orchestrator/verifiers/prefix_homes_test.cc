#include "services/orchestrator/core/verifiers/prefix_homes.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<TokenId> Text(int length, TokenId first = 0) {
  std::vector<TokenId> text;
  for (int i = 0; i < length; ++i) text.push_back(first + i);
  return text;
}

TEST(PrefixHomesTest, APrefixOfATextHasThePrefixOfItsKeys) {
  EXPECT_THAT(KeysOfPrefixes("", Text(100)), IsEmpty());
  EXPECT_THAT(KeysOfPrefixes("a", {}), SizeIs(1));
  EXPECT_THAT(KeysOfPrefixes("a", Text(31)), SizeIs(1));
  EXPECT_THAT(KeysOfPrefixes("a", Text(32)), SizeIs(2));
  const PrefixKeys keys = KeysOfPrefixes("a", Text(1000));
  EXPECT_THAT(keys, SizeIs(6));  // 0 32 64 128 256 512
  EXPECT_THAT(KeysOfPrefixes("a", Text(300)),
              ElementsAreArray(keys.begin(), keys.begin() + 5));
  const std::set<uint64_t> distinct(keys.begin(), keys.end());
  EXPECT_THAT(distinct, SizeIs(6));
  for (const uint64_t key : KeysOfPrefixes("b", Text(1000))) {
    EXPECT_EQ(distinct.count(key), 0u) << "another scope";
  }
}

TEST(PrefixHomesTest, TheLongestKnownPrefixDecides) {
  PrefixHomes homes(100);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", Text(100))).member, -1);
  homes.Note(KeysOfPrefixes("a", Text(40)), 1);
  std::vector<TokenId> fork = Text(40);
  const std::vector<TokenId> end = Text(60, 500);
  fork.insert(fork.end(), end.begin(), end.end());
  homes.Note(KeysOfPrefixes("a", fork), 2);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", fork)).member, 2);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", Text(100))).member, 2)
      << "the latest";
  homes.Note(KeysOfPrefixes("a", Text(100)), 3);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", fork)).member, 2);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", Text(100))).member, 3);
  EXPECT_EQ(homes.Find({}).member, -1);
}

TEST(PrefixHomesTest, DepthSaysHowMuchOfTheTextIsKnown) {
  PrefixHomes homes(100);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", Text(100))).depth, 0);
  homes.Note(KeysOfPrefixes("a", Text(100)), 1);  // 0 32 64
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", Text(900))).depth, 2);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("a", Text(50))).depth, 1);
  const PrefixHomes::Home scope = homes.Find(KeysOfPrefixes("a", Text(900, 5)));
  EXPECT_EQ(scope.member, 1);
  EXPECT_EQ(scope.depth, 0);
}

TEST(PrefixHomesTest, TheTableIsBoundedAndForgetsWhatIsOldest) {
  PrefixHomes homes(50);
  const PrefixKeys used = KeysOfPrefixes("used", Text(100));
  for (int i = 0; i < 1000; ++i) {
    homes.Note(used, 7);
    homes.Note(KeysOfPrefixes(absl::StrCat(i), Text(100)), i);
    EXPECT_LE(homes.size(), 50u);
  }
  EXPECT_EQ(homes.Find(used).member, 7);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("999", Text(100))).member, 999);
  EXPECT_EQ(homes.Find(KeysOfPrefixes("1", Text(100))).member, -1);
}

}  // namespace
}  // namespace foretoken::orchestrator
