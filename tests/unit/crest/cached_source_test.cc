#include "services/crest/core/cached_source.h"

#include <memory>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/crest_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::CrestSample;
using ::foretoken::testing::MakeCrestSample;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

class FakeRows final : public RowFetcher {
 public:
  explicit FakeRows(const CrestSample& sample) : sample_(sample) {}
  absl::StatusOr<std::vector<Row>> Fetch(
      absl::Span<const uint64_t> keys) override {
    if (!status.ok()) return status;
    std::vector<Row> rows;
    for (const auto& [hash, record] : sample_.records) {
      for (const uint64_t key : keys) {
        if (key == hash) rows.push_back({hash, record});
      }
    }
    return rows;
  }
  absl::Status status;

 private:
  const CrestSample& sample_;
};

TEST(CachedSourceTest, AnswersAsTheIndexDoesWithinItsBound) {
  const CrestSample sample = MakeCrestSample(1, 800, 60);
  const auto index =
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined());
  FORETOKEN_ASSERT_OK(index);
  constexpr size_t kCacheBytes = 64 << 10;  // far less than the datastore
  CachedSource source(sample.meta, sample.table,
                      std::make_unique<FakeRows>(sample), kCacheBytes);
  ASSERT_GT(sample.meta.record_bytes, kCacheBytes);
  std::mt19937 random(2);
  CrestTree got;
  CrestTree want;
  for (int i = 0; i < 3000; ++i) {
    std::vector<TokenId> context(random() % 5);
    for (TokenId& token : context) token = static_cast<TokenId>(random() % 60);
    const auto n = source.Lookup(context, got);
    FORETOKEN_ASSERT_OK(n);
    ASSERT_EQ(*n, index->Lookup(context, want));
    ASSERT_EQ(got, want);
    ASSERT_LE(source.bytes(), kCacheBytes + sample.table.bytes() + 4096);
  }
  EXPECT_LE(source.counts().statements, source.counts().lookups);
  EXPECT_GT(source.counts().cache_hits, 0);
}

TEST(CachedSourceTest, AFetchThatFailsIsReportedAndTriedAgain) {
  const CrestSample sample = MakeCrestSample(3, 50);
  auto rows = std::make_unique<FakeRows>(sample);
  FakeRows& fake = *rows;
  CachedSource source(sample.meta, sample.table, std::move(rows), 1 << 20);
  CrestTree tree;
  fake.status = absl::UnavailableError("cut");
  EXPECT_THAT(source.Lookup(sample.ngrams[0], tree),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cut")));
  fake.status = absl::OkStatus();
  const auto n = source.Lookup(sample.ngrams[0], tree);
  FORETOKEN_ASSERT_OK(n);
  EXPECT_EQ(*n, static_cast<int>(sample.ngrams[0].size()));
}

TEST(CachedSourceTest, ARowThatDoesNotDecodeIsDataLoss) {
  CrestSample sample = MakeCrestSample(4, 5);
  for (auto& [hash, record] : sample.records) record.resize(3);
  CachedSource source(sample.meta, sample.table,
                      std::make_unique<FakeRows>(sample), 1 << 20);
  CrestTree tree;
  EXPECT_THAT(source.Lookup(sample.ngrams[0], tree),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record: ")));
}

TEST(CachedSourceTest, AKeyOfAnotherNgramHidesNoShorterOne) {
  CrestSample sample = MakeCrestSample(6, 30);
  for (size_t i = 0; sample.ngrams[0].size() == sample.meta.max_n; ++i) {
    std::swap(sample.ngrams[0], sample.ngrams[i]);
    std::swap(sample.records[0], sample.records[i]);
  }
  // The second n-gram's row stands under the key of a longer context.
  std::vector<TokenId> context = {sample.table.by_rank()[0]};
  context.insert(context.end(), sample.ngrams[0].begin(),
                 sample.ngrams[0].end());
  ASSERT_LE(context.size(), sample.meta.max_n);
  sample.records[1].first = HashNgram(context);
  CachedSource source(sample.meta, sample.table,
                      std::make_unique<FakeRows>(sample), 1 << 20);
  CrestTree first;
  CrestTree again;
  for (CrestTree* tree : {&first, &again}) {  // from the store, from the cache
    const auto n = source.Lookup(context, *tree);
    FORETOKEN_ASSERT_OK(n);
    EXPECT_EQ(*n, static_cast<int>(sample.ngrams[0].size()));
  }
  EXPECT_GT(first.size(), 0);
  EXPECT_EQ(first, again);
  EXPECT_EQ(source.counts().statements, 1);
}

TEST(CachedSourceTest, CountsAsHitsWhatTheCacheKnewBefore) {
  const CrestSample sample = MakeCrestSample(7, 50);
  CachedSource source(sample.meta, sample.table,
                      std::make_unique<FakeRows>(sample), 1 << 20);
  CrestTree tree;
  const std::vector<TokenId> context = sample.ngrams[0];
  FORETOKEN_ASSERT_OK(source.Lookup(context, tree));
  EXPECT_EQ(source.counts().cache_hits, 0);
  EXPECT_EQ(source.counts().cache_misses, static_cast<int64_t>(context.size()));
  FORETOKEN_ASSERT_OK(source.Lookup(context, tree));
  EXPECT_EQ(source.counts().cache_hits, 1);
}

TEST(CachedSourceTest, TellsNgramsWithOneKeyApart) {
  CrestSample sample = MakeCrestSample(5, 2);
  // As if both n-grams had the same hash: both rows come for either key.
  const uint64_t key = HashNgram(sample.ngrams[0]);
  sample.records[1].first = key;
  std::swap(sample.records[0], sample.records[1]);
  CachedSource source(sample.meta, sample.table,
                      std::make_unique<FakeRows>(sample), 1 << 20);
  CrestTree got;
  const auto n = source.Lookup(sample.ngrams[0], got);
  FORETOKEN_ASSERT_OK(n);
  EXPECT_EQ(*n, static_cast<int>(sample.ngrams[0].size()));
  RecordView view;
  CrestTree want;
  const std::string& record = sample.records[1].second;
  FORETOKEN_ASSERT_OK(ParseRecord(
      {reinterpret_cast<const uint8_t*>(record.data()), record.size()},
      sample.table, view, want));
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace foretoken::crest
