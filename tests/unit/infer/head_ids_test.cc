#include "common/infer/head_ids.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HeadIdsTest, EndTokensComeFirstThenTheGivenIdsThenTheLowest) {
  EXPECT_THAT(ChooseHeadIds(10, 5, {9}, {7, 2, 7}), ElementsAre(0, 1, 2, 7, 9));
  EXPECT_THAT(ChooseHeadIds(10, 3, {9, 2}, {7, 5}), ElementsAre(2, 7, 9));
  EXPECT_THAT(ChooseHeadIds(10, 4, {}, {}), ElementsAre(0, 1, 2, 3));
}

TEST(HeadIdsTest, EveryEndTokenIsTaken) {
  EXPECT_THAT(ChooseHeadIds(10, 1, {4, 9}, {1}), ElementsAre(4, 9));
}

TEST(HeadIdsTest, IdsOutsideTheVocabularyAreSkipped) {
  EXPECT_THAT(ChooseHeadIds(4, 2, {-1, 4}, {77, 3}), ElementsAre(0, 3));
}

TEST(HeadIdsTest, NothingIsLeftOutOfASmallVocabulary) {
  EXPECT_THAT(ChooseHeadIds(10, 0, {1}, {2}), IsEmpty());
  EXPECT_THAT(ChooseHeadIds(10, 10, {1}, {2}), IsEmpty());
  EXPECT_THAT(ChooseHeadIds(10, 11, {1}, {2}), IsEmpty());
}

}  // namespace
}  // namespace foretoken
