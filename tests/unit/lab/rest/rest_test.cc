#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/lab/rest/rest_drafter.h"
#include "tests/lab/rest/rest_store.h"
#include "tests/lab/rest/suffix_array.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SuffixArrayTest, EqualsSortingTheSuffixes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const int vocabulary = 1 + static_cast<int>(random() % 5);
    std::vector<TokenId> tokens(random() % 60);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(random() % vocabulary);
    }
    std::vector<int32_t> want(tokens.size());
    std::iota(want.begin(), want.end(), 0);
    std::sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
      return std::lexicographical_compare(tokens.begin() + a, tokens.end(),
                                          tokens.begin() + b, tokens.end());
    });
    ASSERT_EQ(BuildSuffixArray(tokens, vocabulary), want) << trial;
  }
}

TEST(RestStoreTest, FindsEveryOccurrence) {
  std::mt19937 random(2);
  std::vector<TokenId> tokens(3000);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 6);
  for (const int32_t vocabulary : {6, 100'000}) {  // narrow and wide tokens
    const auto store = RestStore::Create(tokens, vocabulary);
    FORETOKEN_ASSERT_OK(store);
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<TokenId> pattern(1 + random() % 6);
      for (TokenId& token : pattern) token = static_cast<TokenId>(random() % 7);
      int64_t want = 0;
      for (auto at = tokens.begin();;) {
        at = std::search(at, tokens.end(), pattern.begin(), pattern.end());
        if (at == tokens.end()) break;
        ++want;
        ++at;
      }
      const RestStore::Range range = store->Find(pattern);
      ASSERT_EQ(range.size(), want);
      for (int64_t i = range.begin; i < range.end; ++i) {
        for (size_t k = 0; k < pattern.size(); ++k) {
          ASSERT_EQ(store->TokenAt(i, static_cast<int64_t>(k)), pattern[k]);
        }
      }
    }
  }
}

TEST(RestStoreTest, RefusesNothingAndForeignTokens) {
  EXPECT_THAT(RestStore::Create({}, 5),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(RestStore::Create({5}, 5),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
}

std::shared_ptr<const RestStore> Store(std::vector<TokenId> tokens) {
  return std::make_shared<const RestStore>(*RestStore::Create(tokens, 100));
}

TEST(RestDrafterTest, DraftsWhatFollowedTheLongestMatch) {
  const auto store = Store({1, 2, 7, 8, 99, 1, 2, 7, 9, 99, 2, 5, 6});
  RestDrafter drafter(store, RestOptions());
  drafter.StartRequest({1, 2});
  DraftTree tree;
  drafter.Draft(3, tree);
  // After 1 2: 7 twice, then 8 or 9; the sum of path lengths is at most 3.
  EXPECT_THAT(tree.tokens, ElementsAre(7, 8));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0));
}

TEST(RestDrafterTest, FallsBackToOneTokenOnlyWhereTold) {
  const auto store = Store({1, 2, 3, 4});
  RestOptions options;
  DraftTree tree;
  RestDrafter published(store, options);
  published.StartRequest({9, 2});
  published.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
  options.min_n = 1;
  options.exact = true;
  RestDrafter fallback(store, options);
  fallback.StartRequest({9});
  fallback.Commit({2});
  fallback.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(3, 4));
}

}  // namespace
}  // namespace foretoken
