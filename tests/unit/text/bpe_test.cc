#include "common/text/bpe.h"

#include <random>

#include "gmock/gmock.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Ids(const std::vector<BpeSymbol>& symbols) {
  std::vector<int32_t> ids;
  for (const BpeSymbol& symbol : symbols) ids.push_back(symbol.id);
  return ids;
}

std::vector<BpeSymbol> Symbols(const std::vector<int32_t>& ids) {
  std::vector<BpeSymbol> symbols;
  for (size_t i = 0; i < ids.size(); ++i) {
    symbols.push_back({ids[i], static_cast<uint32_t>(i)});
  }
  return symbols;
}

// 0 is a letter; 1, 2, 3, ... are 2, 4, 8, ... of it.
BpeMerges Doubling() {
  BpeMerges merges;
  for (int i = 0; i < 20; ++i) {
    merges.Add(i, i, {static_cast<uint32_t>(i), i + 1});
  }
  return merges;
}

TEST(BpeTest, LowestRankMergesFirstAndTheLeftmostOfEquals) {
  BpeMerges merges;
  merges.Add(0, 1, {1, 10});
  merges.Add(1, 2, {0, 11});
  merges.Add(0, 0, {2, 12});
  BpeMerges::Scratch scratch;
  std::vector<BpeSymbol> symbols = Symbols({0, 1, 2, 0, 0, 0});
  merges.Apply(symbols, scratch);
  EXPECT_THAT(Ids(symbols), ElementsAre(0, 11, 12, 0));
  EXPECT_EQ(symbols[2].begin, 3u);
  EXPECT_EQ(symbols[3].begin, 5u);
}

TEST(BpeTest, ALaterAdditionOfAPairReplacesTheEarlier) {
  BpeMerges merges;
  merges.Add(0, 1, {5, 10});
  merges.Add(0, 1, {7, 11});
  EXPECT_EQ(merges.size(), 1u);
  EXPECT_EQ(merges.Find(0, 1).merged, 11);
  EXPECT_EQ(merges.Find(1, 0).rank, BpeMerges::Merge::kNone);
  EXPECT_EQ(merges.Find(BpeSymbol::kNoMerge, 1).rank, BpeMerges::Merge::kNone);
}

// The definition, one merge at a time over the whole text.
std::vector<int32_t> MergeNaively(const BpeMerges& merges,
                                  std::vector<int32_t> ids) {
  while (true) {
    size_t best = ids.size();
    BpeMerges::Merge merge;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const BpeMerges::Merge found = merges.Find(ids[i], ids[i + 1]);
      if (found.rank < merge.rank) {
        merge = found;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merge.merged;
    ids.erase(ids.begin() + best + 1);
  }
}

TEST(BpeTest, ShortAndLongTextsMergeAsTheDefinitionSays) {
  std::mt19937 random(20260101);
  for (int round = 0; round < 300; ++round) {
    BpeMerges merges;
    int next_id = 4;
    for (uint32_t rank = 0; rank < 30; ++rank) {
      const int left = random() % next_id;
      const int right = random() % next_id;
      // Ranks may tie, as SentencePiece's scores do.
      merges.Add(left, right, {rank / 2, next_id++});
    }
    std::vector<int32_t> ids(1 + random() % 120);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 5) - 1;
    std::vector<BpeSymbol> symbols = Symbols(ids);
    BpeMerges::Scratch scratch;
    merges.Apply(symbols, scratch);
    ASSERT_EQ(Ids(symbols), MergeNaively(merges, ids)) << "round " << round;
  }
}

TEST(BpeTest, WorkGrowsWithTheTextAndNotWithItsSquare) {
  const BpeMerges merges = Doubling();
  const auto work = [&](size_t length) {
    std::vector<BpeSymbol> symbols = Symbols(std::vector<int32_t>(length, 0));
    BpeMerges::Scratch scratch;
    merges.Apply(symbols, scratch);
    return scratch.work();
  };
  const uint64_t small = work(1 << 14);
  const uint64_t large = work(1 << 18);
  EXPECT_LE(small, uint64_t{8} << 14);
  EXPECT_LE(large, 17 * small);  // 16 times the text
}

}  // namespace
}  // namespace foretoken
