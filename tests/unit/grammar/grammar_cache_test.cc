#include "common/grammar/grammar_cache.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;

Constraint Regex(const std::string& source) {
  return {Constraint::Kind::kRegex, source, {}};
}
// Of about equal size.
Constraint Numbered(int number) {
  return Regex(absl::StrCat("constraint-", 1000 + number));
}
// What the cache counts for one of those.
int64_t BytesOfOne() {
  GrammarCache cache({});
  EXPECT_THAT(cache.Get("me", Numbered(0)), IsOk());
  return cache.bytes();
}

TEST(GrammarCacheTest, AConstraintIsCompiledOnceForAllCallers) {
  GrammarCache cache({});
  EXPECT_EQ(cache.Find(Regex("a")), nullptr);
  const auto mine = cache.Get("me", Regex("a"));
  ASSERT_THAT(mine, IsOk());
  EXPECT_EQ(*cache.Get("you", Regex("a")), *mine);
  EXPECT_EQ(cache.Find(Regex("a")), *mine);
  EXPECT_EQ(cache.misses(), 1);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_EQ(cache.Find(Regex("b")), nullptr);
}

TEST(GrammarCacheTest, ErrorsAreReportedAndNotKept) {
  GrammarCacheOptions options;
  options.max_constraint_bytes = 10;
  GrammarCache cache(options);
  EXPECT_THAT(cache.Get("me", Regex("a(")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  EXPECT_THAT(cache.Get("me", Regex("aaaaaaaaaaa")).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("11 bytes")));
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.bytes(), 0);
}

TEST(GrammarCacheTest, TheLeastRecentlyUsedOnesMakeRoom) {
  GrammarCacheOptions options;
  options.cache_bytes = 8 * BytesOfOne() + BytesOfOne() / 2;
  GrammarCache cache(options);
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(cache.Get("me", Numbered(i)), IsOk());
  }
  EXPECT_NE(cache.Find(Numbered(0)), nullptr);  // used last
  ASSERT_THAT(cache.Get("me", Numbered(4)), IsOk());
  EXPECT_EQ(cache.size(), 4);  // a caller's half
  EXPECT_NE(cache.Find(Numbered(0)), nullptr);
  EXPECT_EQ(cache.Find(Numbered(1)), nullptr);
  EXPECT_NE(cache.Find(Numbered(4)), nullptr);
}

TEST(GrammarCacheTest, AFloodLeavesTheGrammarsOfOthers) {
  GrammarCacheOptions options;
  options.cache_bytes = 8 * BytesOfOne() + BytesOfOne() / 2;
  GrammarCache cache(options);
  ASSERT_THAT(cache.Get("me", Numbered(0)), IsOk());
  ASSERT_THAT(cache.Get("me", Numbered(1)), IsOk());
  for (int i = 2; i < 100; ++i) {
    ASSERT_THAT(cache.Get(i % 2 == 0 ? "flood" : "other", Numbered(i)), IsOk());
    EXPECT_LE(cache.bytes(), options.cache_bytes);
  }
  EXPECT_EQ(cache.size(), 8);
  EXPECT_NE(cache.Find(Numbered(0)), nullptr);
  EXPECT_NE(cache.Find(Numbered(1)), nullptr);
}

TEST(GrammarCacheTest, OneThatIsTooLargeIsNotKept) {
  GrammarCacheOptions options;
  options.cache_bytes = BytesOfOne();
  GrammarCache cache(options);
  EXPECT_THAT(cache.Get("me", Numbered(0)), IsOk());
  EXPECT_EQ(cache.size(), 0);
  options.cache_bytes = 0;
  GrammarCache none(options);
  EXPECT_THAT(none.Get("me", Numbered(0)), IsOk());
  EXPECT_EQ(none.bytes(), 0);
}

// Half of them find the grammar, or wait for its compilation.
TEST(GrammarCacheTest, ThreadsThatAskAtOnceShareACompilation) {
  GrammarCache cache({});
  constexpr int kThreads = 8, kConstraints = 50;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kConstraints; ++j) {
        failed += !cache.Get(absl::StrCat("caller-", i), Numbered(j)).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(cache.misses(), kConstraints);
  EXPECT_EQ(cache.size(), kConstraints);
}

}  // namespace
}  // namespace foretoken::grammar
