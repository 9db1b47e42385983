#include "common/speculation/token_tree.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenTreeTest, HoldsWhatItWasGiven) {
  const absl::StatusOr<TokenTree> tree =
      TokenTree::Create({11, 12, 21}, {-1, 0, -1});
  FORETOKEN_ASSERT_OK(tree);
  EXPECT_EQ(tree->size(), 3);
  EXPECT_THAT(tree->tokens(), ElementsAre(11, 12, 21));
  EXPECT_THAT(tree->parents(), ElementsAre(-1, 0, -1));
}

TEST(TokenTreeTest, AnEmptyTreeIsATree) {
  const absl::StatusOr<TokenTree> tree = TokenTree::Create({}, {});
  FORETOKEN_ASSERT_OK(tree);
  EXPECT_TRUE(tree->empty());
}

TEST(TokenTreeTest, NamesTheFirstBadNode) {
  EXPECT_THAT(TokenTree::Create({1, 2}, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 tokens but 1 parents")));
  EXPECT_THAT(TokenTree::Create({1, 2, 3}, {-1, 1, 9}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node 1 has parent 1, want -1..0")));
  EXPECT_THAT(TokenTree::Create({1}, {-2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node 0 has parent -2")));
  EXPECT_THAT(TokenTree::Create({1, -5}, {-1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node 1 has token -5")));
}

}  // namespace
}  // namespace foretoken
