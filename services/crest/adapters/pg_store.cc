#include "services/crest/adapters/pg_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/crest/adapters/pg_publisher.h"

namespace foretoken::crest {
namespace {

constexpr size_t kMaxNameLength = 48;
constexpr char kVersionColumns[] =
    "version, name, to_char(created AT TIME ZONE 'UTC', "
    "'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), current, meta";

absl::Span<const uint8_t> BytesOf(absl::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

absl::StatusOr<PgVersion> VersionOf(const PgResult& result, int row) {
  PgVersion version;
  version.version = result.Int8(row, 0);
  version.name = std::string(result.Bytes(row, 1));
  version.created = std::string(result.Bytes(row, 2));
  version.current = result.Bool(row, 3);
  absl::StatusOr<CrestMeta> decoded = DecodeMeta(BytesOf(result.Bytes(row, 4)));
  if (!decoded.ok()) {
    return Annotate(decoded.status(), absl::StrCat("version ", version.version,
                                                   " of ", version.name));
  }
  version.meta = *decoded;
  return version;
}

// Fetches rows of one version.
class PgRowFetcher final : public RowFetcher {
 public:
  PgRowFetcher(std::unique_ptr<PgStore> owner, PgConnection& connection)
      : owner_(std::move(owner)), connection_(connection) {}

  absl::StatusOr<std::vector<Row>> Fetch(
      absl::Span<const uint64_t> keys) override {
    const std::vector<int64_t> values(keys.begin(), keys.end());
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult result,
        connection_.ExecPrepared(kStatement, {PgParam::Int8Array(values)}));
    std::vector<Row> rows(result.rows());
    for (int i = 0; i < result.rows(); ++i) {
      rows[i].key = static_cast<uint64_t>(result.Int8(i, 0));
      rows[i].record = std::string(result.Bytes(i, 1));
    }
    return rows;
  }

  static constexpr char kStatement[] = "crest_lookup";

 private:
  const std::unique_ptr<PgStore> owner_;
  PgConnection& connection_;
};

}  // namespace

std::string RowsTable(int64_t version) {
  return absl::StrCat("foretoken_crest_rows_", version);
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
    FORETOKEN_ASSIGN_OR_RETURN(PgVersion version, VersionOf(result, row));
    versions.push_back(std::move(version));
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
      FORETOKEN_ASSIGN_OR_RETURN(PgVersion version, VersionOf(result, 0));
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
      DecodeTokenTable(BytesOf(version.token_table), version.meta));
  std::string records;
  records.reserve(version.meta.record_bytes);
  FORETOKEN_RETURN_IF_ERROR(connection_->CopyOut(
      "read rows",
      absl::StrCat("COPY (SELECT record FROM ", RowsTable(version.version),
                   ") TO STDOUT (FORMAT binary)"),
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
    std::unique_ptr<PgStore> store, const PgVersion& version) {
  PgConnection& connection = *store->connection_;
  FORETOKEN_RETURN_IF_ERROR(connection.Prepare(
      PgRowFetcher::kStatement,
      absl::StrCat("SELECT key, record FROM ", RowsTable(version.version),
                   " WHERE key = ANY($1::bigint[])")));
  return std::make_unique<PgRowFetcher>(std::move(store), connection);
}

absl::Status PgStore::Drop(const std::string& name,
                           std::optional<int64_t> version) {
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(name));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<PgVersion> versions, List());
  std::vector<int64_t> wanted;
  for (const PgVersion& v : versions) {
    if (v.name == name && (!version.has_value() || v.version == *version)) {
      wanted.push_back(v.version);
    }
  }
  if (wanted.empty()) {
    return absl::NotFoundError(
        absl::StrCat("datastore \"", name, "\": ",
                     version.has_value() ? absl::StrCat("no version ", *version)
                                         : std::string("no version")));
  }
  // One implicit transaction a version: both statements or neither.
  for (const int64_t v : wanted) {
    FORETOKEN_RETURN_IF_ERROR(
        connection_
            ->Exec("drop version",
                   absl::StrCat("DO $$ BEGIN DELETE FROM "
                                "foretoken_crest_versions WHERE version = ",
                                v, "; DROP TABLE ", RowsTable(v), "; END $$"))
            .status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> PgStore::NewVersion(
    std::unique_ptr<PgStore> store, const std::string& name,
    const TokenTable& table) {
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(name));
  auto publisher =
      std::make_unique<PgPublisher>(std::move(store->connection_), name, table);
  FORETOKEN_RETURN_IF_ERROR(publisher->Begin());
  return std::unique_ptr<DatastoreSink>(std::move(publisher));
}

}  // namespace foretoken::crest
