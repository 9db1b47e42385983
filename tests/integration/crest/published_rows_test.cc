// What PgPublisher writes in the binary format of COPY, which it makes by hand,
// read by another client: libpqxx, in the text format, with its own decoder.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/drafting/crest/crest_meta.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/adapters/pg_store.h"
#include "tests/integration/crest/pg_store_fixture.h"
#include "tests/support/crest_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::CrestSample;
using ::foretoken::testing::MakeCrestSample;
using ::testing::ElementsAre;
using ::testing::Pair;

using Row = std::pair<int64_t, std::string>;  // key, record

// Names and types of a table's columns, in order.
std::vector<std::pair<std::string, std::string>> Columns(
    pqxx::transaction_base& read, const std::string& table) {
  std::vector<std::pair<std::string, std::string>> columns;
  for (const auto& row : read.exec(absl::StrCat(
           "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
           "WHERE attrelid = '",
           table, "'::regclass AND attnum > 0 ORDER BY attnum"))) {
    columns.emplace_back(row[0].as<std::string>(), row[1].as<std::string>());
  }
  return columns;
}

class PublishedRowsTest : public PgStoreFixture {
 protected:
  // The rows of a version, in the order of their keys and records.
  static std::vector<Row> Rows(pqxx::transaction_base& read, int64_t version) {
    std::vector<Row> rows;
    for (const auto& row : read.exec(
             absl::StrCat("SELECT key, record FROM ", RowsTable(version)))) {
      EXPECT_FALSE(row[0].is_null() || row[1].is_null());
      rows.emplace_back(row[0].as<int64_t>(), pqxx::binarystring(row[1]).str());
    }
    std::sort(rows.begin(), rows.end());
    return rows;
  }
};

TEST_F(PublishedRowsTest, AnotherClientReadsEveryRowAndType) {
  const CrestSample sample = MakeCrestSample(21, 3000);
  auto sink = Begin("rows", sample);
  FORETOKEN_ASSERT_OK(sink);
  std::vector<std::pair<uint64_t, std::string>> written = sample.records;
  // Keys are hashes of 64 bits, and PostgreSQL's integers have a sign.
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes.push_back(static_cast<char>(c));
  // Longer than what is sent at once.
  const std::string large = std::string(300000, '\\') + bytes;
  written.insert(written.end(), {{0, ""},
                                 {most, bytes},
                                 {most / 2, large},
                                 {most / 2 + 1, std::string("\0", 1)},
                                 {1, "\\x00"},
                                 {1, "\\N"}});
  for (const auto& [key, record] : written) {
    FORETOKEN_ASSERT_OK((*sink)->Add(key, record));
  }
  const auto version = (*sink)->Publish(sample.meta);
  FORETOKEN_ASSERT_OK(version);

  pqxx::connection connection(server_->url());
  pqxx::work read(connection);
  EXPECT_THAT(Columns(read, RowsTable(*version)),
              ElementsAre(Pair("key", "bigint"), Pair("record", "bytea")));
  std::vector<Row> want;
  for (const auto& [key, record] : written) {
    want.emplace_back(static_cast<int64_t>(key), record);
  }
  std::sort(want.begin(), want.end());
  EXPECT_TRUE(Rows(read, *version) == want);
}

TEST_F(PublishedRowsTest, TheVersionIsEqualByteForByte) {
  const CrestSample first = MakeCrestSample(22, 500);
  const CrestSample sample = MakeCrestSample(23, 2000);
  FORETOKEN_ASSERT_OK(Publish("version", first));
  FORETOKEN_ASSERT_OK(Publish("version", sample));

  pqxx::connection connection(server_->url());
  pqxx::work read(connection);
  EXPECT_THAT(Columns(read, "foretoken_crest_versions"),
              ElementsAre(Pair("version", "bigint"), Pair("name", "text"),
                          Pair("created", "timestamp with time zone"),
                          Pair("current", "boolean"), Pair("meta", "bytea"),
                          Pair("token_table", "bytea")));
  const pqxx::result versions = read.exec(
      "SELECT version, name, current, meta, token_table, "
      "created BETWEEN now() - interval '1 hour' AND now() "
      "FROM foretoken_crest_versions WHERE name = 'version' ORDER BY version");
  ASSERT_EQ(versions.size(), 2u);
  int i = 0;
  for (const CrestSample* each : {&first, &sample}) {
    const auto row = versions[i];
    EXPECT_EQ(row[1].as<std::string>(), "version");
    EXPECT_EQ(row[2].as<bool>(), i == 1);
    EXPECT_EQ(pqxx::binarystring(row[3]).str(), EncodeMeta(each->meta));
    EXPECT_EQ(pqxx::binarystring(row[4]).str(),
              EncodeTokenTable(each->table, each->meta));
    EXPECT_TRUE(row[5].as<bool>());
    std::vector<Row> want;
    for (const auto& [key, record] : each->records) {
      want.emplace_back(static_cast<int64_t>(key), record);
    }
    std::sort(want.begin(), want.end());
    EXPECT_TRUE(Rows(read, row[0].as<int64_t>()) == want);
    ++i;
  }
}

}  // namespace
}  // namespace foretoken::crest
