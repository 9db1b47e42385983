// The datastore in a real PostgreSQL, and everything that may go wrong there.
#include "services/crest/adapters/pg_store.h"

#include <sys/mount.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/core/cached_source.h"
#include "tests/integration/crest/pg_store_fixture.h"
#include "tests/support/crest_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::AddAll;
using ::foretoken::testing::CrestSample;
using ::foretoken::testing::MakeCrestSample;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class PgStoreTest : public PgStoreFixture {};

TEST_F(PgStoreTest, GivesBackWhatWasPublished) {
  const CrestSample sample = MakeCrestSample(1, 3000);
  FORETOKEN_ASSERT_OK(Publish("whole", sample));
  const auto from_records =
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined());
  FORETOKEN_ASSERT_OK(from_records);
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto version = (*store)->Current("whole");
  FORETOKEN_ASSERT_OK(version);
  const auto index = (*store)->LoadIndex(*version);
  FORETOKEN_ASSERT_OK(index);
  CrestTree got;
  CrestTree want;
  for (const auto& ngram : sample.ngrams) {
    ASSERT_EQ(index->Lookup(ngram, got), from_records->Lookup(ngram, want));
    ASSERT_EQ(got, want);
  }
}

TEST_F(PgStoreTest, LooksUpAllLengthsInOneStatementAndThenInTheCache) {
  const CrestSample sample = MakeCrestSample(2, 2000, 300);
  FORETOKEN_ASSERT_OK(Publish("lookup", sample));
  const auto index =
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined());
  FORETOKEN_ASSERT_OK(index);
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto version = (*store)->Current("lookup");
  FORETOKEN_ASSERT_OK(version);
  auto fetcher = PgStore::MakeFetcher(*std::move(store), version->version);
  FORETOKEN_ASSERT_OK(fetcher);
  CachedSource source(version->meta, sample.table, *std::move(fetcher),
                      64 << 20);
  std::mt19937 random(3);
  CrestTree got;
  CrestTree want;
  int hits = 0;
  std::vector<std::vector<TokenId>> contexts;
  for (int i = 0; i < 500; ++i) {
    std::vector<TokenId> context(1 + random() % 6);
    for (TokenId& token : context) token = static_cast<TokenId>(random() % 300);
    contexts.push_back(context);
    const int64_t before = source.counts().statements;
    const auto n = source.Lookup(context, got);
    FORETOKEN_ASSERT_OK(n);
    EXPECT_LE(source.counts().statements, before + 1);
    ASSERT_EQ(*n, index->Lookup(context, want));
    ASSERT_EQ(got, want);
    hits += *n > 0;
  }
  EXPECT_GT(hits, 100);
  const int64_t statements = source.counts().statements;
  for (const auto& context : contexts) {
    FORETOKEN_ASSERT_OK(source.Lookup(context, got));
  }
  EXPECT_EQ(source.counts().statements, statements);
}

// Keys that a look-up asks for are partly not stored.
TEST_F(PgStoreTest, EveryIndexGivesTheSameRows) {
  const CrestSample sample = MakeCrestSample(4, 2000, 300);
  std::vector<uint64_t> keys = {1, 2, 3};
  std::vector<std::string> want;
  for (const auto& [hash, record] : sample.records) {
    keys.push_back(hash);
    want.push_back(record);
  }
  for (const std::string& index : RowIndexes()) {
    FORETOKEN_ASSERT_OK(Publish("indexed", sample, {index}));
    auto store = Connect();
    FORETOKEN_ASSERT_OK(store);
    const auto version = (*store)->Current("indexed");
    FORETOKEN_ASSERT_OK(version);
    EXPECT_EQ(server_->Sql("SELECT amname FROM pg_index JOIN pg_class c ON "
                           "c.oid = indexrelid JOIN pg_am a ON a.oid = c.relam "
                           "WHERE indrelid = '" +
                           RowsTable(version->version) + "'::regclass"),
              index + "\n");
    // The planner prefers to read a table as small as this one.
    FORETOKEN_ASSERT_OK((*store)->LoadIndex(*version));
    server_->Sql("ALTER ROLE postgres SET enable_seqscan = off");
    auto own = Connect();
    FORETOKEN_ASSERT_OK(own);
    auto fetcher = PgStore::MakeFetcher(*std::move(own), version->version);
    FORETOKEN_ASSERT_OK(fetcher);
    const auto rows = (*fetcher)->Fetch(keys);
    server_->Sql("ALTER ROLE postgres RESET enable_seqscan");
    FORETOKEN_ASSERT_OK(rows);
    std::vector<std::string> got;
    for (const auto& row : *rows) got.push_back(row.record);
    EXPECT_THAT(got, ::testing::UnorderedElementsAreArray(want)) << index;
  }
}

TEST_F(PgStoreTest, AnUnknownIndexIsRefusedBeforeAnythingIsWritten) {
  EXPECT_THAT(Publish("gin", MakeCrestSample(5, 50), {"gin (key); --"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want one of btree hash")));
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  EXPECT_THAT((*store)->Current("gin"),
              StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(PgStoreTest, SwitchesAtOnceAndKeepsThePreviousVersionForItsReaders) {
  const CrestSample first = MakeCrestSample(10, 200);
  const CrestSample second = MakeCrestSample(11, 200);
  FORETOKEN_ASSERT_OK(Publish("switch", first));
  auto reader = Connect();
  FORETOKEN_ASSERT_OK(reader);
  const auto old = (*reader)->Current("switch");
  FORETOKEN_ASSERT_OK(old);

  auto sink = Begin("switch", second);
  FORETOKEN_ASSERT_OK(sink);
  FORETOKEN_ASSERT_OK(AddAll(second, **sink));
  ExpectServes("switch", first);
  FORETOKEN_ASSERT_OK((*sink)->Publish(second.meta));
  ExpectServes("switch", second);
  FORETOKEN_EXPECT_OK((*reader)->LoadIndex(*old));

  FORETOKEN_ASSERT_OK(Publish("switch", MakeCrestSample(12, 200)));
  EXPECT_THAT(
      (*reader)->LoadIndex(*old),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("read rows")));
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, ABuilderThatGivesUpLeavesNothing) {
  const CrestSample first = MakeCrestSample(20, 200);
  FORETOKEN_ASSERT_OK(Publish("giveup", first));
  {
    auto sink = Begin("giveup", MakeCrestSample(21, 200));
    FORETOKEN_ASSERT_OK(sink);
    FORETOKEN_ASSERT_OK(AddAll(MakeCrestSample(21, 200), **sink));
  }
  ExpectServes("giveup", first);
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, TwoBuildersOfOneNameDoNotMix) {
  const CrestSample sample = MakeCrestSample(30, 50);
  auto one = Begin("twice", sample);
  FORETOKEN_ASSERT_OK(one);
  EXPECT_THAT(Begin("twice", sample),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("\"twice\": another build")));
  FORETOKEN_EXPECT_OK(Publish("other", sample));
}

TEST_F(PgStoreTest, AReadOnlyServerServesAndRefusesBuilds) {
  const CrestSample first = MakeCrestSample(40, 200);
  FORETOKEN_ASSERT_OK(Publish("readonly", first));
  server_->StopCleanly();
  server_->Start("-c default_transaction_read_only=on");
  EXPECT_THAT(Publish("readonly", MakeCrestSample(41, 200)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("read-only transaction")));
  ExpectServes("readonly", first);
  server_->StopCleanly();
  server_->Start();
  const CrestSample next = MakeCrestSample(42, 200);
  FORETOKEN_EXPECT_OK(Publish("readonly", next));
  ExpectServes("readonly", next);
}

TEST_F(PgStoreTest, ACutConnectionIsUnavailableAndLeavesTheOldVersion) {
  const CrestSample first = MakeCrestSample(50, 200);
  FORETOKEN_ASSERT_OK(Publish("cut", first));
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto version = (*store)->Current("cut");
  FORETOKEN_ASSERT_OK(version);
  auto fetcher = PgStore::MakeFetcher(*std::move(store), version->version);
  FORETOKEN_ASSERT_OK(fetcher);
  const CrestSample second = MakeCrestSample(51, 200);
  auto sink = Begin("cut", second);
  FORETOKEN_ASSERT_OK(sink);
  server_->CutConnections();
  absl::Status status = AddAll(second, **sink);
  if (status.ok()) status = (*sink)->Publish(second.meta).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_THAT((*fetcher)->Fetch({1, 2}),
              StatusIs(absl::StatusCode::kUnavailable, _));
  ExpectServes("cut", first);
  FORETOKEN_EXPECT_OK(Publish("cut", second));
  ExpectServes("cut", second);
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, AServerKilledWhilePublishingComesBackWithTheOldVersion) {
  const CrestSample first = MakeCrestSample(60, 2000);
  FORETOKEN_ASSERT_OK(Publish("crash", first));
  const CrestSample second = MakeCrestSample(61, 2000);
  auto sink = Begin("crash", second);
  FORETOKEN_ASSERT_OK(sink);
  FORETOKEN_ASSERT_OK(AddAll(second, **sink));
  server_->Kill();
  EXPECT_THAT((*sink)->Publish(second.meta),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_THAT(Connect(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connect")));
  server_->Start();
  ExpectServes("crash", first);
  FORETOKEN_EXPECT_OK(Publish("crash", second));
  ExpectServes("crash", second);
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, AFullDiskIsReportedAndLeavesTheOldVersion) {
  const CrestSample first = MakeCrestSample(70, 200);
  FORETOKEN_ASSERT_OK(Publish("full", first));
  // A tablespace on a file system of its own, of 4 MiB.
  const std::string folder = server_->MakeServerFolder("small");
  if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m,mode=0777") != 0) {
    GTEST_SKIP() << "may not mount a small file system here";
  }
  const std::string space = server_->MakeServerFolder("small/space");
  server_->Sql("CREATE TABLESPACE small LOCATION '" + space + "'");
  server_->StopCleanly();
  server_->Start("-c default_tablespace=small");
  const absl::Status status = Publish("full", MakeCrestSample(71, 30000));
  ExpectServes("full", first);
  server_->StopCleanly();
  server_->Start();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("No space left")));
  const CrestSample next = MakeCrestSample(72, 200);
  FORETOKEN_EXPECT_OK(Publish("full", next));
  ExpectServes("full", next);
  ExpectNothingHalfPublished();
  server_->Sql("DROP TABLESPACE small");
  umount(folder.c_str());
}

TEST_F(PgStoreTest, RowsThatWereChangedOrLostAreNoticed) {
  FORETOKEN_ASSERT_OK(Publish("tamper", MakeCrestSample(80, 100)));
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto version = (*store)->Current("tamper");
  FORETOKEN_ASSERT_OK(version);
  const std::string rows = RowsTable(version->version);
  server_->Sql("UPDATE " + rows +
               " SET record = set_byte(record, length(record) - 1, "
               "(get_byte(record, length(record) - 1) + 1) % 256) "
               "WHERE ctid = (SELECT min(ctid) FROM " +
               rows + ")");
  EXPECT_THAT(
      (*store)->LoadIndex(*version),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of tamper")));
  server_->Sql("DELETE FROM " + rows + " WHERE ctid = (SELECT max(ctid) FROM " +
               rows + ")");
  EXPECT_THAT((*store)->LoadIndex(*version),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
}

TEST_F(PgStoreTest, DropsOneVersionOrAll) {
  FORETOKEN_ASSERT_OK(Publish("drop", MakeCrestSample(90, 50)));
  FORETOKEN_ASSERT_OK(Publish("drop", MakeCrestSample(91, 50)));
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  EXPECT_THAT((*store)->Drop("drop", 123456),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("123456")));
  FORETOKEN_ASSERT_OK((*store)->Drop("drop", std::nullopt));
  EXPECT_THAT((*store)->Current("drop"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"drop\"")));
  EXPECT_THAT((*store)->Drop("drop", std::nullopt),
              StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT((*store)->Drop("Bad Name", std::nullopt),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, ADamagedVersionHidesNoOtherAndCanBeDropped) {
  FORETOKEN_ASSERT_OK(Publish("hurt", MakeCrestSample(100, 50)));
  FORETOKEN_ASSERT_OK(Publish("sound", MakeCrestSample(101, 50)));
  server_->Sql(
      "UPDATE foretoken_crest_versions SET meta = 'x' WHERE name = 'hurt'");
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto list = (*store)->List();
  FORETOKEN_ASSERT_OK(list);
  int hurt = 0;
  int sound = 0;
  for (const PgVersion& version : *list) {
    hurt += version.name == "hurt" && !version.damage.ok();
    sound += version.name == "sound" && version.damage.ok();
  }
  EXPECT_EQ(hurt, 1);
  EXPECT_EQ(sound, 1);
  EXPECT_THAT(
      (*store)->Current("hurt"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of hurt")));
  FORETOKEN_EXPECT_OK((*store)->Drop("hurt", std::nullopt));
  FORETOKEN_EXPECT_OK((*store)->Current("sound"));
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, DropsAVersionWhoseRowsAreGone) {
  FORETOKEN_ASSERT_OK(Publish("rowless", MakeCrestSample(102, 50)));
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto version = (*store)->Current("rowless");
  FORETOKEN_ASSERT_OK(version);
  server_->Sql("DROP TABLE " + RowsTable(version->version));
  FORETOKEN_EXPECT_OK((*store)->Drop("rowless", std::nullopt));
  EXPECT_THAT((*store)->Current("rowless"),
              StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(PgStoreTest, DropsAllVersionsOrNone) {
  FORETOKEN_ASSERT_OK(Publish("all", MakeCrestSample(103, 50)));
  auto reader = PgConnection::Open(server_->url(), absl::Seconds(60));
  FORETOKEN_ASSERT_OK(reader);
  {
    auto store = Connect();
    FORETOKEN_ASSERT_OK(store);
    const auto old = (*store)->Current("all");
    FORETOKEN_ASSERT_OK(old);
    FORETOKEN_ASSERT_OK((*reader)->Exec("begin", "BEGIN"));
    FORETOKEN_ASSERT_OK((*reader)->Exec(
        "hold",
        "LOCK TABLE " + RowsTable(old->version) + " IN ACCESS SHARE MODE"));
  }
  FORETOKEN_ASSERT_OK(Publish("all", MakeCrestSample(104, 50)));
  auto store = PgStore::Connect(server_->url(), absl::Milliseconds(300));
  FORETOKEN_ASSERT_OK(store);
  EXPECT_THAT((*store)->Drop("all", std::nullopt),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  FORETOKEN_ASSERT_OK((*reader)->Exec("commit", "COMMIT"));
  store = Connect();
  FORETOKEN_ASSERT_OK(store);
  const auto list = (*store)->List();
  FORETOKEN_ASSERT_OK(list);
  EXPECT_EQ(std::count_if(list->begin(), list->end(),
                          [](const PgVersion& v) { return v.name == "all"; }),
            2);
  FORETOKEN_EXPECT_OK((*store)->Drop("all", std::nullopt));
  ExpectNothingHalfPublished();
}

TEST_F(PgStoreTest, ChecksBeforehandWhetherItMayPublish) {
  auto store = Connect();
  FORETOKEN_ASSERT_OK(store);
  FORETOKEN_EXPECT_OK((*store)->CheckPublishable("new"));
  FORETOKEN_EXPECT_OK((*store)->CheckPublishable("new"));  // left nothing
  EXPECT_THAT((*store)->CheckPublishable("Bad.Name"),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
  server_->StopCleanly();
  server_->Start("-c default_transaction_read_only=on");
  store = Connect();
  FORETOKEN_ASSERT_OK(store);
  EXPECT_THAT((*store)->CheckPublishable("new"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("read-only transaction")));
  server_->StopCleanly();
  server_->Start();
}

}  // namespace
}  // namespace foretoken::crest
