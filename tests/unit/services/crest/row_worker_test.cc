// Look-ups through a store that hangs, dies and comes back.
#include "services/crest/core/row_worker.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/crest_samples.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::CrestSample;
using ::foretoken::testing::Eventually;
using ::foretoken::testing::MakeCrestSample;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

// A store of a sample's rows, shared by its connections.
struct FakeStore {
  explicit FakeStore(const CrestSample& sample) {
    for (const auto& [key, record] : sample.records) {
      rows.emplace(key, record);
    }
  }
  std::multimap<uint64_t, std::string> rows;
  std::atomic<int> statements = 0;
  std::atomic<int> connects = 0;
  std::atomic<bool> dead = false;
  absl::Mutex gate;  // held by a test: statements hang
};

class FakeFetcher final : public RowFetcher {
 public:
  explicit FakeFetcher(FakeStore& store) : store_(store) {}
  absl::StatusOr<std::vector<Row>> Fetch(
      absl::Span<const uint64_t> keys) override {
    ++store_.statements;
    absl::MutexLock lock(&store_.gate);
    if (store_.dead) return absl::DeadlineExceededError("no answer in time");
    std::vector<Row> rows;
    for (const uint64_t key : keys) {
      const auto [begin, end] = store_.rows.equal_range(key);
      for (auto it = begin; it != end; ++it) rows.push_back({key, it->second});
    }
    return rows;
  }

 private:
  FakeStore& store_;
};

class RowWorkerTest : public ::testing::Test {
 protected:
  RowWorkerTest()
      : sample_(MakeCrestSample(5, 500, 60)),
        index_(*CrestIndex::FromRecords(sample_.meta, sample_.table,
                                        sample_.Joined())),
        store_(sample_) {}

  std::unique_ptr<RowWorker> Make(RowWorkerOptions options = {}) {
    options.least_backoff = absl::Milliseconds(1);
    options.most_backoff = absl::Milliseconds(10);
    return std::make_unique<RowWorker>(
        options, sample_.meta, sample_.table,
        std::make_unique<FakeFetcher>(store_),
        [this]() -> absl::StatusOr<std::unique_ptr<RowFetcher>> {
          ++store_.connects;
          if (store_.dead) return absl::UnavailableError("connect: refused");
          return std::make_unique<FakeFetcher>(store_);
        });
  }

  std::vector<TokenId> Context(uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<TokenId> context(1 + random() % 6);
    for (TokenId& token : context) token = static_cast<TokenId>(random() % 60);
    return context;
  }

  // One look-up, waited for.
  static BatchedSource::Query LookUp(RowWorker& worker,
                                     std::vector<TokenId> context) {
    BatchedSource::Query got;
    absl::Notification done;
    const absl::Status status = worker.Submit(
        std::move(context), [&](const BatchedSource::Query& query) {
          got = query;
          done.Notify();
        });
    if (status.ok()) {
      done.WaitForNotification();
    } else {
      got.n = status;
    }
    return got;
  }

  static void AwaitUp(const RowWorker& worker, bool up) {
    EXPECT_TRUE(Eventually([&] { return worker.up() == up; }));
  }

  const CrestSample sample_;
  const CrestIndex index_;
  FakeStore store_;
};

TEST_F(RowWorkerTest, AnswersWhatTheIndexAnswers) {
  const auto worker = Make();
  CrestTree want;
  int hits = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const BatchedSource::Query got = LookUp(*worker, Context(seed));
    FORETOKEN_ASSERT_OK(got.n);
    ASSERT_EQ(*got.n, index_.Lookup(Context(seed), want));
    ASSERT_EQ(got.tree, want);
    hits += *got.n > 0;
  }
  EXPECT_GT(hits, 100);
}

TEST_F(RowWorkerTest, TakesAllThatWaitInOneStatement) {
  const auto worker = Make();
  constexpr int kLookups = 40;
  std::atomic<int> answered = 0;
  std::vector<BatchedSource::Query> got(kLookups);
  {
    absl::MutexLock hang(&store_.gate);
    for (int i = 0; i < kLookups; ++i) {
      FORETOKEN_ASSERT_OK(
          worker->Submit(Context(i), [&, i](const BatchedSource::Query& query) {
            got[i] = query;
            ++answered;
          }));
      // The first statement is on its way alone; the rest wait behind it.
      EXPECT_TRUE(Eventually([&] { return store_.statements > 0; }));
    }
  }
  EXPECT_TRUE(Eventually([&] { return answered == kLookups; }));
  EXPECT_EQ(store_.statements, 2);
  CrestTree want;
  for (int i = 0; i < kLookups; ++i) {
    ASSERT_EQ(*got[i].n, index_.Lookup(Context(i), want));
    ASSERT_EQ(got[i].tree, want);
  }
}

TEST_F(RowWorkerTest, ATinyCacheStillAnswersWholeBatches) {
  RowWorkerOptions options;
  options.cache_bytes = 0;
  const CrestSample large = MakeCrestSample(6, 20000, 3000);
  store_.rows.clear();
  for (const auto& [key, record] : large.records)
    store_.rows.emplace(key, record);
  const auto index =
      CrestIndex::FromRecords(large.meta, large.table, large.Joined());
  FORETOKEN_ASSERT_OK(index);
  BatchedSource source(large.meta, large.table, options.cache_bytes);
  source.SetFetcher(std::make_unique<FakeFetcher>(store_));
  std::mt19937 random(1);
  CrestTree want;
  for (int round = 0; round < 100; ++round) {
    std::vector<BatchedSource::Query> queries(64);
    for (BatchedSource::Query& query : queries) {
      query.context = large.ngrams[random() % large.ngrams.size()];
    }
    FORETOKEN_ASSERT_OK(source.LookupMany(queries));
    for (const BatchedSource::Query& query : queries) {
      ASSERT_EQ(*query.n, index->Lookup(query.context, want));
      ASSERT_EQ(query.tree, want);
    }
  }
}

TEST_F(RowWorkerTest, SaysWhichLookupsTheCacheAnswered) {
  const auto worker = Make();
  EXPECT_FALSE(LookUp(*worker, Context(1)).cached);
  EXPECT_TRUE(LookUp(*worker, Context(1)).cached);
  EXPECT_EQ(store_.statements, 1);
}

TEST_F(RowWorkerTest, AStoreThatDiesFailsWhatWaitsAndComesBack) {
  const auto worker = Make();
  std::atomic<int> failed = 0;
  {
    absl::MutexLock hang(&store_.gate);
    for (int i = 0; i < 10; ++i) {
      FORETOKEN_ASSERT_OK(
          worker->Submit(Context(i), [&](const BatchedSource::Query& query) {
            failed += absl::IsUnavailable(query.n.status());
          }));
    }
    store_.dead = true;
  }
  AwaitUp(*worker, false);
  EXPECT_TRUE(Eventually([&] { return failed == 10; }));
  // While down nothing is asked: the answer is at hand.
  EXPECT_THAT(LookUp(*worker, Context(3)).n,
              StatusIs(absl::StatusCode::kUnavailable, _));
  const int before = store_.connects;
  EXPECT_TRUE(Eventually([&] { return store_.connects >= before + 3; }));
  store_.dead = false;
  AwaitUp(*worker, true);
  CrestTree want;
  const BatchedSource::Query got = LookUp(*worker, Context(3));
  FORETOKEN_ASSERT_OK(got.n);
  EXPECT_EQ(*got.n, index_.Lookup(Context(3), want));
}

TEST_F(RowWorkerTest, AFullLineRefuses) {
  RowWorkerOptions options;
  options.max_waiting = 2;
  const auto worker = Make(options);
  std::atomic<int> answered = 0;
  const auto done = [&](const BatchedSource::Query&) { ++answered; };
  {
    absl::MutexLock hang(&store_.gate);
    FORETOKEN_ASSERT_OK(worker->Submit(Context(1), done));
    EXPECT_TRUE(Eventually([&] { return store_.statements > 0; }));
    FORETOKEN_ASSERT_OK(worker->Submit(Context(2), done));
    FORETOKEN_ASSERT_OK(worker->Submit(Context(3), done));
    EXPECT_THAT(worker->Submit(Context(4), done),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("2 look-ups wait")));
  }
  EXPECT_TRUE(Eventually([&] { return answered == 3; }));
}

TEST_F(RowWorkerTest, AnswersWhatWaitsBeforeItGoes) {
  auto worker = Make();
  std::atomic<int> answered = 0;
  for (int i = 0; i < 100; ++i) {
    FORETOKEN_ASSERT_OK(worker->Submit(
        Context(i),
        [&](const BatchedSource::Query& query) { answered += query.n.ok(); }));
  }
  worker.reset();
  EXPECT_EQ(answered, 100);
}

}  // namespace
}  // namespace foretoken::crest
