#include "common/drafting/window_trie.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using Tokens = std::vector<TokenId>;
using Counts = std::map<TokenId, uint32_t>;

constexpr TokenId kBorder = -1;

void AppendAll(WindowTrie& trie, const Tokens& tokens) {
  for (TokenId token : tokens) trie.Append(token);
}

WindowTrie::Context Find(const WindowTrie& trie, const Tokens& context) {
  WindowTrie::Context at = trie.Root(context[0]);
  for (size_t i = 1; i < context.size() && at != WindowTrie::kNoContext; ++i) {
    const WindowTrie::Continuations list = trie.Of(at);
    const int index = list.Find(context[i]);
    at = index < 0 ? WindowTrie::kNoContext : list.links[index];
  }
  return at;
}

Counts CountsAfter(const WindowTrie& trie, const Tokens& context) {
  Counts counts;
  const WindowTrie::Context at = Find(trie, context);
  if (at == WindowTrie::kNoContext) return counts;
  const WindowTrie::Continuations list = trie.Of(at);
  uint32_t total = 0;
  for (uint32_t i = 0; i < list.size; ++i) {
    counts[static_cast<TokenId>(list.tokens[i])] = list.counts[i];
    total += list.counts[i];
    if (i > 0) {
      EXPECT_LE(list.counts[i], list.counts[i - 1]);
    }
  }
  EXPECT_EQ(total, list.total);
  return counts;
}

// What the trie must say, straight from the text it holds. An occurrence
// counts from its first token on: `text` is the window.
Counts NaiveCountsAfter(const Tokens& text, const Tokens& context) {
  Counts counts;
  for (size_t i = 0; i + context.size() < text.size(); ++i) {
    const TokenId next = text[i + context.size()];
    if (next != kBorder &&
        std::equal(context.begin(), context.end(), text.begin() + i)) {
      ++counts[next];
    }
  }
  return counts;
}

TEST(WindowTrieTest, CountsWhatFollowedEachContext) {
  WindowTrie trie(64);
  AppendAll(trie, {5, 6, 7, 5, 6, 8, 5, 6, 7});
  EXPECT_EQ(CountsAfter(trie, {5, 6}), (Counts{{7, 2}, {8, 1}}));
  EXPECT_EQ(CountsAfter(trie, {6}), (Counts{{7, 2}, {8, 1}}));
  EXPECT_EQ(CountsAfter(trie, {9}), Counts{});
}

TEST(WindowTrieTest, LatestStandsBeforeItsEquals) {
  WindowTrie trie(64);
  AppendAll(trie, {5, 6, 5, 7, 5, 8});
  const WindowTrie::Continuations list = trie.Of(trie.Root(5));
  EXPECT_EQ((Tokens{list.tokens, list.tokens + list.size}), (Tokens{8, 7, 6}));
}

TEST(WindowTrieTest, NoContextSpansTheEndOfASequence) {
  WindowTrie trie(64);
  AppendAll(trie, {5, 6});
  trie.EndSequence();
  AppendAll(trie, {7, 8});
  EXPECT_EQ(CountsAfter(trie, {6}), Counts{});
  EXPECT_EQ(CountsAfter(trie, {7}), (Counts{{8, 1}}));
}

TEST(WindowTrieTest, AtFullDepthTheLinkIsTheLatestPosition) {
  WindowTrie trie(64);
  AppendAll(trie, {1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 6, 8});
  const WindowTrie::Continuations list = trie.Of(Find(trie, {1, 2, 3, 4, 5}));
  ASSERT_EQ(list.size, 1u);
  const uint32_t position = list.links[0];
  EXPECT_EQ(trie.TokenAt(position), 6);
  ASSERT_TRUE(trie.Holds(position + 1));
  EXPECT_EQ(trie.TokenAt(position + 1), 8);
  EXPECT_FALSE(trie.Holds(trie.end_position() + 1));
}

TEST(WindowTrieTest, EqualsANaiveCountOfTheWindowUnderEviction) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    WindowTrie trie(64);
    Tokens text;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 40 == 0 && !text.empty() && text.back() != kBorder) {
        trie.EndSequence();
        text.push_back(kBorder);
      } else {
        // A few frequent tokens, and repeats of what stood 20 before.
        const TokenId token = random() % 2 == 0 && text.size() > 20 &&
                                      text[text.size() - 20] != kBorder
                                  ? text[text.size() - 20]
                                  : static_cast<TokenId>(random() % 5);
        trie.Append(token);
        text.push_back(token);
      }
      if (text.size() > 64) text.erase(text.begin());
      ASSERT_EQ(trie.size(), text.size());
      if (step % 37 != 0) continue;
      for (size_t length = 1; length < WindowTrie::kDepth; ++length) {
        for (size_t at = 0; at + length <= text.size(); at += 3) {
          const Tokens context(text.begin() + at, text.begin() + at + length);
          if (std::count(context.begin(), context.end(), kBorder) != 0) {
            continue;
          }
          ASSERT_EQ(CountsAfter(trie, context), NaiveCountsAfter(text, context))
              << "step " << step << " length " << length << " at " << at;
        }
      }
    }
  }
}

TEST(WindowTrieTest, MemoryIsBoundedHoweverMuchPassesThrough) {
  constexpr size_t kWindow = 4096;
  WindowTrie trie(kWindow);
  std::mt19937 random(7);
  // The worst text: no context ever repeats.
  for (size_t i = 0; i < 20 * kWindow; ++i) {
    trie.Append(static_cast<TokenId>(random() % 30000));
  }
  EXPECT_EQ(trie.size(), kWindow);
  EXPECT_LE(trie.MemoryBytes(), trie.MaxBytes());
  // And the other extreme does not add to it.
  for (size_t i = 0; i < 20 * kWindow; ++i) {
    trie.Append(static_cast<TokenId>(random() % 3));
  }
  EXPECT_LE(trie.MemoryBytes(), trie.MaxBytes());
  EXPECT_LT(trie.MaxBytes(), kWindow * 300);
}

// Text whose contexts have ever more continuations needs blocks of ever other
// sizes: those of the sizes before must not pile up.
TEST(WindowTrieTest, MemoryIsBoundedWhenTheTextChangesItsShape) {
  constexpr size_t kWindow = 4096;
  WindowTrie trie(kWindow);
  std::mt19937 random(7);
  for (uint32_t kinds : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u, 24u, 32u, 64u}) {
    for (size_t i = 0; i < 3 * kWindow; ++i) {
      trie.Append(static_cast<TokenId>(i % 2 == 0 ? i / 2 % (2048 / kinds)
                                                  : 5000 + random() % kinds));
    }
    ASSERT_LE(trie.MemoryBytes(), trie.MaxBytes()) << kinds;
  }
  const WindowTrie::Continuations list = trie.Of(trie.Root(3));
  uint32_t total = 0;
  for (uint32_t i = 0; i < list.size; ++i) {
    ASSERT_GE(list.tokens[i], 5000u);
    total += list.counts[i];
  }
  EXPECT_EQ(total, list.total);
}

TEST(WindowTrieTest, AFullContextMakesRoomForTheNewest) {
  constexpr uint32_t kMost = WindowTrie::kMaxContinuations;
  WindowTrie trie(1 << 17);
  AppendAll(trie, {1, 5, 1, 5});  // twice: never the least frequent
  // More distinct continuations than any block could number in 16 bits.
  constexpr TokenId kEnd = 60'000;
  for (TokenId token = 10; token < kEnd; ++token) {
    trie.Append(1);
    trie.Append(token);
  }
  const Counts counts = CountsAfter(trie, {1});
  EXPECT_EQ(counts.size(), kMost);
  EXPECT_EQ(counts.at(5), 2u);
  for (TokenId token = kEnd - static_cast<TokenId>(kMost) + 1; token < kEnd;
       ++token) {
    ASSERT_EQ(counts.count(token), 1u) << token;
  }
  EXPECT_LE(trie.MemoryBytes(), trie.MaxBytes());
  for (int i = 0; i < (1 << 17); ++i) trie.Append(2);
  EXPECT_EQ(trie.Root(1), WindowTrie::kNoContext);
  EXPECT_EQ(CountsAfter(trie, {2}), (Counts{{2, (1u << 17) - 1}}));
}

// Hubs, one of them in nearly every context, stay for ever while windows pass:
// entries go by making room and by eviction in every mixture.
TEST(WindowTrieTest, PersistentHubsNeverCountMoreThanTheWindowHolds) {
  constexpr size_t kWindow = 8192;
  for (uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    WindowTrie trie(kWindow);
    Tokens text;
    for (size_t step = 0; step < 6 * kWindow; ++step) {
      const uint32_t kinds = step / kWindow % 2 == 0 ? 300 : 9000;
      const TokenId token = random() % 2 == 0
                                ? static_cast<TokenId>(random() % 2)
                                : static_cast<TokenId>(2 + random() % kinds);
      trie.Append(token);
      text.push_back(token);
      ASSERT_LE(trie.MemoryBytes(), trie.MaxBytes());
      if (step % 4093 != 0) continue;
      const Tokens window(
          text.end() - static_cast<ptrdiff_t>(std::min(text.size(), kWindow)),
          text.end());
      for (const Tokens& context :
           {Tokens{0}, Tokens{1}, Tokens{0, 0}, Tokens{0, 1}, Tokens{1, 0, 1},
            Tokens{window.back(), 0}}) {
        const Counts naive = NaiveCountsAfter(window, context);
        const Counts counts = CountsAfter(trie, context);
        ASSERT_LE(counts.size(), WindowTrie::kMaxContinuations);
        for (const auto& [next, count] : counts) {
          const auto found = naive.find(next);
          ASSERT_NE(found, naive.end()) << next;
          ASSERT_LE(count, found->second) << next;
        }
      }
    }
  }
}

TEST(WindowTrieTest, ContextsAreStableWhileTheVersionIs) {
  WindowTrie trie(64);
  AppendAll(trie, {5, 6, 7, 5, 6});
  const uint64_t version = trie.version();
  const WindowTrie::Context context = Find(trie, {5, 6});
  EXPECT_EQ(trie.Open(2), context);
  trie.Append(9);
  EXPECT_EQ(trie.version(), version);
  EXPECT_EQ(Find(trie, {5, 6}), context);
  for (int i = 0; i < 64; ++i) trie.Append(1);
  EXPECT_NE(trie.version(), version);
}

TEST(WindowTrieTest, ClearLeavesNothing) {
  WindowTrie trie(64);
  AppendAll(trie, {5, 6, 7});
  trie.Clear();
  EXPECT_EQ(trie.size(), 0u);
  EXPECT_EQ(trie.Root(5), WindowTrie::kNoContext);
  AppendAll(trie, {6, 7});
  EXPECT_EQ(CountsAfter(trie, {6}), (Counts{{7, 1}}));
}

}  // namespace
}  // namespace foretoken
