// PgStore on a PostgreSQL of its own, which a test may kill.
#ifndef FORETOKEN_TESTS_INTEGRATION_CREST_PG_STORE_FIXTURE_H_
#define FORETOKEN_TESTS_INTEGRATION_CREST_PG_STORE_FIXTURE_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "services/crest/adapters/pg_store.h"
#include "tests/support/crest_samples.h"
#include "tests/support/private_postgres.h"
#include "tests/support/status_matchers.h"

namespace foretoken::crest {

class PgStoreFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (testing::PrivatePostgres::Installed())
      server_ = new testing::PrivatePostgres;
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override {
    if (server_ == nullptr) {
      GTEST_SKIP() << "PostgreSQL is not installed on this machine";
    }
  }

  static absl::StatusOr<std::unique_ptr<PgStore>> Connect() {
    return PgStore::Connect(server_->url(), absl::Seconds(60));
  }
  static absl::StatusOr<std::unique_ptr<DatastoreSink>> Begin(
      const std::string& name, const testing::CrestSample& sample,
      const RowOptions& rows = {}) {
    auto store = Connect();
    if (!store.ok()) return store.status();
    return PgStore::NewVersion(*std::move(store), name, sample.table, rows);
  }
  static absl::Status Publish(const std::string& name,
                              const testing::CrestSample& sample,
                              const RowOptions& rows = {}) {
    auto sink = Begin(name, sample, rows);
    if (!sink.ok()) return sink.status();
    absl::Status status = testing::AddAll(sample, **sink);
    if (!status.ok()) return status;
    return (*sink)->Publish(sample.meta).status();
  }

  // The current version of `name` is `sample`, whole.
  static void ExpectServes(const std::string& name,
                           const testing::CrestSample& sample) {
    auto store = Connect();
    FORETOKEN_ASSERT_OK(store);
    const auto version = (*store)->Current(name);
    FORETOKEN_ASSERT_OK(version);
    EXPECT_EQ(version->meta.record_digest, sample.meta.record_digest);
    const auto index = (*store)->LoadIndex(*version);
    FORETOKEN_ASSERT_OK(index);
    CrestTree tree;
    EXPECT_EQ(index->Lookup(sample.ngrams[0], tree),
              static_cast<int>(sample.ngrams[0].size()));
  }
  // Every table of rows belongs to a version.
  static void ExpectNothingHalfPublished() {
    EXPECT_EQ(server_->Sql("SELECT count(*) FROM pg_class WHERE relkind = 'r' "
                           "AND relname LIKE 'foretoken_crest_rows_%'"),
              server_->Sql("SELECT count(*) FROM foretoken_crest_versions"));
  }

  static inline testing::PrivatePostgres* server_ = nullptr;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_TESTS_INTEGRATION_CREST_PG_STORE_FIXTURE_H_
