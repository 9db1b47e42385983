#include "services/trie_drafter/core/scope_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::trie_drafter {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

ScopeKey Key(const std::string& scope) { return ScopeKey::Of(scope, ""); }

TEST(ScopeKeyTest, DependsOnScopeAndTokenizerAndWhereOneEnds) {
  EXPECT_TRUE(ScopeKey::Of("a", "f") == ScopeKey::Of("a", "f"));
  EXPECT_FALSE(ScopeKey::Of("a", "f") == ScopeKey::Of("b", "f"));
  EXPECT_FALSE(ScopeKey::Of("a", "f") == ScopeKey::Of("a", "g"));
  EXPECT_FALSE(ScopeKey::Of("ab", "c") == ScopeKey::Of("a", "bc"));
}

TEST(ScopeMemoryTest, PhrasesOfEveryLengthHaveAPoolUpToABound) {
  ScopeMemory memory((ScopeOptions()));
  memory.AddPhrases({{1, 2}, {1, 2, 3}, {5}, {}, Phrase(65, 1)});
  EXPECT_EQ(memory.phrases(), 2);  // one token, none and 65 are no phrase
  EXPECT_THAT(memory.NewestPhrases(0, 10),
              ElementsAre(ElementsAre(1, 2), ElementsAre(1, 2, 3)));
  memory.AddPhrases({Phrase(4, 1), Phrase(5, 1), Phrase(6, 1), Phrase(7, 1)});
  EXPECT_EQ(memory.phrases(), 4);
  EXPECT_THAT(memory.NewestPhrases(6, 10), SizeIs(0));
}

TEST(ScopeMemoryTest, PoolsAreBounded) {
  ScopeOptions options;
  options.pool_width = 2;
  options.pool_phrases = 5;
  ScopeMemory memory(options);
  memory.AddPhrases({{1, 1}, {1, 2}, {1, 3}});
  EXPECT_THAT(memory.NewestPhrases(2, 10),
              ElementsAre(ElementsAre(1, 3), ElementsAre(1, 2)));
  for (TokenId t = 10; t < 30; ++t) memory.AddPhrases({{t, 0}});
  EXPECT_EQ(memory.phrases(), 5);
}

TEST(ScopeTableTest, TheLeastRecentlyUsedScopeLeaves) {
  ScopeOptions options;
  options.max_scopes = 2;
  ScopeTable table(options);
  const auto a = table.FindOrCreate(Key("a"));
  EXPECT_TRUE(a.created);
  table.FindOrCreate(Key("b"));
  EXPECT_FALSE(table.FindOrCreate(Key("a")).created);
  table.FindOrCreate(Key("c"));  // b leaves
  EXPECT_EQ(table.FindOrCreate(Key("a")).memory, a.memory);
  EXPECT_TRUE(table.FindOrCreate(Key("b")).created);
  EXPECT_EQ(table.totals().scopes, 2);
  EXPECT_EQ(table.totals().evicted, 2);
}

TEST(ScopeTableTest, AllScopesTogetherAreBoundedInBytes) {
  ScopeOptions options;
  options.max_bytes = 200000;
  ScopeTable table(options);
  for (int i = 0; i < 50; ++i) {
    const ScopeKey key = Key(std::to_string(i));
    const auto found = table.FindOrCreate(key);
    for (TokenId t = 0; t < 200; ++t) found.memory->AddPhrases({{t, i, i, i}});
    table.Grown(key);
    ASSERT_LE(table.totals().bytes, options.max_bytes);
  }
  EXPECT_GT(table.totals().scopes, 0);
  EXPECT_LT(table.totals().scopes, 50);
  EXPECT_EQ(table.totals().phrases, 200 * table.totals().scopes);
  // The newest are the ones that stayed.
  EXPECT_FALSE(table.FindOrCreate(Key("49")).created);
  EXPECT_TRUE(table.FindOrCreate(Key("0")).created);
}

}  // namespace
}  // namespace foretoken::trie_drafter
