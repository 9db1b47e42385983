#include "services/crest/adapters/pg_store.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "services/crest/adapters/pg_publisher.h"

namespace foretoken::crest {
namespace {

// Names also appear in metrics' labels and in log lines.
constexpr size_t kMaxNameLength = 48;
// DROP TABLE needs an exclusive lock, for which it waits while a reader copies
// the table. New readers queue up after it, so give up in time.
constexpr absl::Duration kDropLockTimeout = absl::Seconds(10);
constexpr char kVersionColumns[] =
    "version, name, to_char(created AT TIME ZONE 'UTC', "
    "'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), current, meta";

absl::Status NoVersion(const std::string& name,
                       std::optional<int64_t> version) {
  return absl::NotFoundError(
      absl::StrCat("datastore \"", name, "\": ",
                   version.has_value() ? absl::StrCat("no version ", *version)
                                       : std::string("no version")));
}

// Sets `damage` if the meta cannot be decoded.
PgVersion VersionOf(const PgResult& result, int row) {
  PgVersion version;
  version.version = result.Int8(row, 0);
  version.name = std::string(result.Bytes(row, 1));
  version.created = std::string(result.Bytes(row, 2));
  version.current = result.Bool(row, 3);
  absl::StatusOr<CrestMeta> decoded = DecodeMeta(AsBytes(result.Bytes(row, 4)));
  if (decoded.ok()) {
    version.meta = *decoded;
  } else {
    version.damage = Annotate(
        decoded.status(),
        absl::StrCat("version ", version.version, " of ", version.name));
  }
  return version;
}

// Fetches rows of one version.
class PgRowFetcher final : public RowFetcher {
 public:
  PgRowFetcher(std::unique_ptr<PgConnection> connection, int64_t version,
               const FetchOptions& options)
      : connection_(std::move(connection)),
        version_(version),
        options_(options),
        wait_(options.first_wait) {}

  absl::Status Prepare() {
    FORETOKEN_RETURN_IF_ERROR(connection_->Prepare(
        kStatement,
        absl::StrCat("SELECT key, record FROM ", RowsTable(version_),
                     " WHERE key = ANY($1::bigint[])")));
    prepared_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Row>> Fetch(
      absl::Span<const uint64_t> keys) override {
    absl::StatusOr<std::vector<Row>> rows = FetchNow(keys);
    if (rows.ok()) {
      wait_ = options_.first_wait;
    } else if (connection_->broken() && next_attempt_ <= MonotonicNow()) {
      // Only an attempt that was made moves the next one: a look-up that fails
      // at once during the back-off must not prolong it.
      next_attempt_ = MonotonicNow() + wait_;
      wait_ = std::min(2 * wait_, options_.longest_wait);
    }
    return rows;
  }

 private:
  static constexpr char kStatement[] = "crest_lookup";

  absl::StatusOr<std::vector<Row>> FetchNow(absl::Span<const uint64_t> keys) {
    if (connection_->broken()) {
      const absl::Duration left = next_attempt_ - MonotonicNow();
      if (left > absl::ZeroDuration()) {
        return absl::UnavailableError(
            absl::StrCat("PostgreSQL: connection lost, next attempt in ",
                         absl::FormatDuration(left)));
      }
      // Prepared statements belong to the server's session.
      prepared_ = false;
      FORETOKEN_RETURN_IF_ERROR(connection_->Reopen());
    }
    if (!prepared_) FORETOKEN_RETURN_IF_ERROR(Prepare());
    // bigint is signed: keys keep their 64 bits and come back the same way.
    const std::vector<int64_t> values(keys.begin(), keys.end());
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult result,
        connection_->ExecPrepared(kStatement, {PgParam::Int8Array(values)}));
    std::vector<Row> rows(result.rows());
    for (int i = 0; i < result.rows(); ++i) {
      rows[i].key = static_cast<uint64_t>(result.Int8(i, 0));
      rows[i].record = std::string(result.Bytes(i, 1));
    }
    return rows;
  }

  const std::unique_ptr<PgConnection> connection_;
  const int64_t version_;
  const FetchOptions options_;
  bool prepared_ = false;
  absl::Duration wait_;
  absl::Time next_attempt_ = absl::InfinitePast();
};

}  // namespace

std::string RowsTable(int64_t version) {
  return absl::StrCat("foretoken_crest_rows_", version);
}

// Tries instead of waiting: the holder may be a build of many minutes. The lock
// ends with the transaction, also when the connection is lost. The two keys are
// the class and a hash of the name; a collision of two names only refuses a
// build that could have run.
absl::Status LockName(PgConnection& connection, const std::string& name) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult lock,
      connection.Exec("lock name",
                      absl::StrCat("SELECT pg_try_advisory_xact_lock(",
                                   kPgLockClass, ", hashtext($1))"),
                      {PgParam::Text(name)}));
  if (lock.Bool(0, 0)) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("datastore \"", name, "\": another build is publishing it"));
}

absl::Status CheckDatastoreName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxNameLength;
  for (const char c : name) {
    good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("datastore name \"", name,
                                                 "\": want 1..", kMaxNameLength,
                                                 " of a-z, 0-9, _ and -"));
}

absl::StatusOr<std::unique_ptr<PgStore>> PgStore::Connect(
    const std::string& url, absl::Duration timeout) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<PgConnection> connection,
                             PgConnection::Open(url, timeout));
  return std::unique_ptr<PgStore>(new PgStore(std::move(connection)));
}

// The schema is created by the first build; readers may start before it.
// to_regclass returns null for a table that does not exist, where a query would
// be an error.
absl::StatusOr<bool> PgStore::HasSchema() {
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult result,
      connection_->Exec("find schema",
                        "SELECT to_regclass('foretoken_crest_versions') "
                        "IS NOT NULL"));
  return result.Bool(0, 0);
}

absl::StatusOr<std::vector<PgVersion>> PgStore::List() {
  FORETOKEN_ASSIGN_OR_RETURN(const bool schema, HasSchema());
  if (!schema) return std::vector<PgVersion>();
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult result,
      connection_->Exec("list versions",
                        absl::StrCat("SELECT ", kVersionColumns,
                                     " FROM foretoken_crest_versions "
                                     "ORDER BY name, version DESC")));
  std::vector<PgVersion> versions;
  for (int row = 0; row < result.rows(); ++row) {
    versions.push_back(VersionOf(result, row));
  }
  return versions;
}

absl::StatusOr<PgVersion> PgStore::Current(const std::string& name) {
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(name));
  FORETOKEN_ASSIGN_OR_RETURN(const bool schema, HasSchema());
  if (schema) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult result,
        connection_->Exec(
            "current version",
            absl::StrCat("SELECT ", kVersionColumns,
                         ", token_table FROM foretoken_crest_versions "
                         "WHERE name = $1 AND current"),
            {PgParam::Text(name)}));
    if (result.rows() == 1) {
      PgVersion version = VersionOf(result, 0);
      FORETOKEN_RETURN_IF_ERROR(version.damage);
      version.token_table = std::string(result.Bytes(0, 5));
      return version;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("datastore \"", name, "\": no version is published"));
}

absl::StatusOr<CrestIndex> PgStore::LoadIndex(const PgVersion& version) {
  FORETOKEN_ASSIGN_OR_RETURN(
      TokenTable table,
      DecodeTokenTable(AsBytes(version.token_table), version.meta));
  std::string records;
  records.reserve(version.meta.record_bytes);
  FORETOKEN_RETURN_IF_ERROR(connection_->CopyOut(
      "read rows",
      absl::StrCat("COPY (SELECT record FROM ", RowsTable(version.version),
                   ") TO STDOUT (FORMAT binary)"),
      // The meta gives the size that was published: more rows than that mean
      // damage, and must not fill memory.
      [&](absl::string_view record) -> absl::Status {
        if (records.size() + record.size() > version.meta.record_bytes) {
          return absl::DataLossError(
              absl::StrCat("version ", version.version, ": more than the ",
                           version.meta.record_bytes, " bytes published"));
        }
        records.append(record.data(), record.size());
        return absl::OkStatus();
      }));
  absl::StatusOr<CrestIndex> index = CrestIndex::FromRecords(
      version.meta, std::move(table), std::move(records));
  if (!index.ok()) {
    return Annotate(index.status(), absl::StrCat("version ", version.version,
                                                 " of ", version.name));
  }
  return index;
}

absl::StatusOr<std::unique_ptr<RowFetcher>> PgStore::MakeFetcher(
    std::unique_ptr<PgStore> store, int64_t version,
    const FetchOptions& options) {
  auto fetcher = std::make_unique<PgRowFetcher>(std::move(store->connection_),
                                                version, options);
  FORETOKEN_RETURN_IF_ERROR(fetcher->Prepare());
  return std::unique_ptr<RowFetcher>(std::move(fetcher));
}

absl::Status PgStore::CheckPublishable(const std::string& name) {
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(name));
  FORETOKEN_RETURN_IF_ERROR(connection_->Run("begin", "BEGIN"));
  // Creates a table as publishing does, then rolls back. Not a temporary table:
  // the user may be allowed to create only those.
  const absl::Status status = connection_->Run(
      "create a table", "CREATE TABLE foretoken_crest_probe (key bigint)");
  connection_->RollBack();
  return status;
}

absl::StatusOr<std::vector<int64_t>> PgStore::VersionsOf(
    const std::string& name, std::optional<int64_t> version) {
  std::vector<int64_t> wanted;
  FORETOKEN_ASSIGN_OR_RETURN(const bool schema, HasSchema());
  if (schema) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult result,
        connection_->Exec("find versions",
                          "SELECT version FROM foretoken_crest_versions "
                          "WHERE name = $1",
                          {PgParam::Text(name)}));
    for (int row = 0; row < result.rows(); ++row) {
      const int64_t found = result.Int8(row, 0);
      if (!version.has_value() || found == *version) wanted.push_back(found);
    }
  }
  if (wanted.empty()) return NoVersion(name, version);
  return wanted;
}

absl::Status PgStore::Drop(const std::string& name,
                           std::optional<int64_t> version) {
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(name));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted,
                             VersionsOf(name, version));
  return connection_->InTransaction([&]() -> absl::Status {
    FORETOKEN_RETURN_IF_ERROR(connection_->LimitLockWaits(kDropLockTimeout));
    for (const int64_t v : wanted) {
      FORETOKEN_RETURN_IF_ERROR(connection_->Run(
          "drop version",
          "DELETE FROM foretoken_crest_versions WHERE version = $1",
          {PgParam::Int8(v)}));
      FORETOKEN_RETURN_IF_ERROR(connection_->Run(
          "drop rows", "DROP TABLE IF EXISTS " + RowsTable(v)));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> PgStore::Switch(const std::string& name,
                                        int64_t version) {
  FORETOKEN_ASSIGN_OR_RETURN(const bool schema, HasSchema());
  if (!schema) return NoVersion(name, version);
  int64_t previous = 0;
  const auto switch_current = [&]() -> absl::Status {
    FORETOKEN_RETURN_IF_ERROR(LockName(*connection_, name));
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult old,
        connection_->Exec("retire version",
                          "UPDATE foretoken_crest_versions SET current = false "
                          "WHERE name = $1 AND current RETURNING version",
                          {PgParam::Text(name)}));
    if (old.rows() == 1) previous = old.Int8(0, 0);
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult now,
        connection_->Exec("switch version",
                          "UPDATE foretoken_crest_versions SET current = true "
                          "WHERE name = $1 AND version = $2 RETURNING version",
                          {PgParam::Text(name), PgParam::Int8(version)}));
    return now.rows() == 1 ? absl::OkStatus() : NoVersion(name, version);
  };
  FORETOKEN_RETURN_IF_ERROR(connection_->InTransaction(switch_current));
  return previous;
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> PgStore::NewVersion(
    std::unique_ptr<PgStore> store, const std::string& name,
    const TokenTable& table, const RowOptions& rows) {
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(name));
  // The method becomes part of a statement.
  if (!absl::c_linear_search(RowIndexes(), rows.index)) {
    return absl::InvalidArgumentError(
        absl::StrCat("index of rows: \"", rows.index, "\", want one of ",
                     absl::StrJoin(RowIndexes(), " ")));
  }
  auto publisher = std::make_unique<PgPublisher>(std::move(store->connection_),
                                                 name, table, rows);
  FORETOKEN_RETURN_IF_ERROR(publisher->Begin());
  return std::unique_ptr<DatastoreSink>(std::move(publisher));
}

}  // namespace foretoken::crest
