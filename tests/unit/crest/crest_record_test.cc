#include "common/drafting/crest/crest_record.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/crest_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::RandomTree;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TokenTable Identity(int32_t vocabulary) {
  std::vector<TokenId> by_rank(vocabulary);
  for (int32_t i = 0; i < vocabulary; ++i) by_rank[i] = i;
  return *TokenTable::Create(by_rank, vocabulary);
}

TEST(CrestRecordTest, GivesBackEveryTreeAndNgram) {
  // Ranks of one, two and four bytes; parents and falls with escapes.
  const TokenTable table = Identity(100'000);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<TokenId> ngram(1 + random() % kMaxCrestN);
    for (TokenId& token : ngram) {
      token = static_cast<TokenId>(random() % 100'000);
    }
    const CrestTree want = RandomTree(random, kMaxCrestNodes, 100'000);
    std::string bytes = "before";
    AppendRecord(ngram, want, table, bytes);
    bytes.erase(0, 6);

    RecordView view;
    CrestTree got;
    FORETOKEN_ASSERT_OK(ParseRecord(BytesOf(bytes), table, view, got));
    ASSERT_EQ(got, want);
    ASSERT_EQ(view.bytes, bytes.size());
    ASSERT_EQ(absl::Span<const TokenId>(view.ngram, view.n),
              absl::MakeConstSpan(ngram));

    std::vector<uint32_t> ranks(ngram.begin(), ngram.end());
    CrestTree fast;
    ASSERT_TRUE(DecodeRecordIf(BytesOf(bytes).data(), ranks, table, fast));
    ASSERT_EQ(fast, want);
    ++ranks.back();
    ASSERT_FALSE(DecodeRecordIf(BytesOf(bytes).data(), ranks, table, fast));
  }
}

TEST(CrestRecordTest, RefusesEveryTruncation) {
  const TokenTable table = Identity(30'000);
  std::mt19937 random(2);
  std::string bytes;
  AppendRecord({1, 20'000, 300}, RandomTree(random, 64, 30'000), table, bytes);
  RecordView view;
  CrestTree tree;
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(
        ParseRecord(BytesOf(bytes).first(length), table, view, tree),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("record: ")));
  }
}

TEST(CrestRecordTest, NamesWhatIsWrong) {
  const TokenTable table = Identity(10);
  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {
      {std::string("\x09", 1), "n is 9"},
      {std::string("\x01\x0a", 2), "bad token of n-gram"},
      {std::string("\x01\x01\x05\x81\x02", 5), "257 nodes"},
      {std::string("\x01\x01\x05\x01\x05\x0b\x00", 7), "bad token of node 0"},
      {std::string("\x01\x01\x05\x01\x05\x01\x04", 7), "node 0 has parent 0"},
      {std::string("\x01\x01\x05\x01\x01\x01\x02", 7), "bad count of node 0"},
      {std::string("\x01\x01\x05\x01\x06\x01\x00", 7), "counts more than all"},
  };
  for (const auto& bad : cases) {
    RecordView view;
    CrestTree tree;
    EXPECT_THAT(
        ParseRecord(BytesOf(bad.bytes), table, view, tree),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
  }
}

TEST(CrestRecordTest, EscapesThatNoTreeHoldsAreRefused) {
  const TokenTable table = Identity(10);
  RecordView record;
  CrestTree tree;
  // One node whose parent is 63 + 0x7fffffc1, and one whose parent wraps.
  for (const std::string parent :
       {"\xfc\xc1\xff\xff\xff\x07", "\xfc\xc1\xff\xff\xff\x0f"}) {
    const std::string bytes = std::string("\x01\0\x01\x01\x01\0", 6) + parent;
    EXPECT_THAT(ParseRecord(BytesOf(bytes), table, record, tree),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  }
}

TEST(TokenTableTest, RefusesTokensTwiceAndOutsideTheVocabulary) {
  EXPECT_THAT(TokenTable::Create({3, 1, 3}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ranks 0 and 2 are both token 3")));
  EXPECT_THAT(TokenTable::Create({4}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("token 4, want 0..3")));
  const auto table = TokenTable::Create({2, 0}, 4);
  FORETOKEN_ASSERT_OK(table);
  EXPECT_EQ(table->RankOf(0), 1u);
  EXPECT_EQ(table->RankOf(3), kNoRank);
  EXPECT_EQ(table->RankOf(-1), kNoRank);
  EXPECT_EQ(table->RankOf(4), kNoRank);
}

}  // namespace
}  // namespace foretoken
