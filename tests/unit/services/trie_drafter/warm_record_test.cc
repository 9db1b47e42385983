#include "services/trie_drafter/core/warm_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace foretoken::trie_drafter {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 1000;
using Sequences = std::vector<std::vector<TokenId>>;

ScopeKey Key() { return ScopeKey::Of("scope", "tokenizer"); }

absl::Status Refusal(const std::string& bytes,
                     RecordKind kind = RecordKind::kPhrases,
                     const ScopeKey& key = Key(), int32_t vocab = kVocab) {
  return DecodeRecord(key, kind, bytes, vocab).status();
}

TEST(WarmRecordTest, SurvivesBeingStored) {
  const Sequences phrases = {{1, 2, 3}, {4, 5}, {999, 0}};
  const auto got =
      DecodeRecord(Key(), RecordKind::kPhrases,
                   EncodeRecord(Key(), RecordKind::kPhrases, phrases), kVocab);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, phrases);
}

TEST(WarmRecordTest, EveryChangedBitAndEveryCutIsNoticed) {
  const std::string record =
      EncodeRecord(Key(), RecordKind::kPhrases, {{1, 2, 3}, {4, 5}});
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::string changed = record;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(absl::IsDataLoss(Refusal(changed))) << bit;
  }
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(Refusal(record.substr(0, size)))) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(Refusal(record + "x")));
  EXPECT_TRUE(absl::IsDataLoss(Refusal(std::string(1 << 20, 'g'))));
}

TEST(WarmRecordTest, BelongsToItsScopeKindAndVocabulary) {
  const std::string record =
      EncodeRecord(Key(), RecordKind::kPhrases, {{1, 2}, {700, 3}});
  const auto lost = [](const char* what) {
    return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(what));
  };
  EXPECT_THAT(
      Refusal(record, RecordKind::kPhrases, ScopeKey::Of("scope", "another")),
      lost("checksum"));
  EXPECT_THAT(Refusal(record, RecordKind::kOutput), lost("kind"));
  EXPECT_THAT(Refusal(record, RecordKind::kPhrases, Key(), 700),
              lost("vocabulary"));
  EXPECT_TRUE(Refusal(record, RecordKind::kPhrases, Key(), 701).ok());
}

TEST(WarmRecordTest, KeepsTheNewestOfWhatIsTooLong) {
  std::vector<TokenId> output(kMaxRecordTokens + 100);
  for (size_t i = 0; i < output.size(); ++i) {
    output[i] = static_cast<TokenId>(i % 7);
  }
  const std::string record =
      EncodeRecord(Key(), RecordKind::kOutput, {{9}, output});
  EXPECT_LE(record.size(), kMaxRecordBytes);
  const auto got = DecodeRecord(Key(), RecordKind::kOutput, record, kVocab);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(std::vector<TokenId>(output.begin() + 100,
                                                     output.end())));

  Sequences phrases;
  for (TokenId i = 0; i < 5000; ++i) phrases.push_back({i % kVocab, 1, 2});
  const std::string many = EncodeRecord(Key(), RecordKind::kPhrases, phrases);
  EXPECT_LE(many.size(), kMaxRecordBytes);
  const auto newest = DecodeRecord(Key(), RecordKind::kPhrases, many, kVocab);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->size(), kMaxRecordTokens / 3);
  EXPECT_EQ(newest->back(), phrases.back());
  EXPECT_EQ(newest->front().size(), 3u);
}

}  // namespace
}  // namespace foretoken::trie_drafter
