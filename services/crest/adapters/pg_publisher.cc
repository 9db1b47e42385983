#include "services/crest/adapters/pg_publisher.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/crest/adapters/pg_store.h"

namespace foretoken::crest {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
// Building an index or sorting may take a while without a word.
constexpr absl::Duration kSlowStatement = absl::Minutes(30);
constexpr absl::Duration kPruneTimeout = absl::Seconds(10);

// First key of our advisory locks: "crst".
constexpr char kLockClass[] = "1668445044";

constexpr char kCreateVersions[] =
    "CREATE TABLE IF NOT EXISTS foretoken_crest_versions ("
    "version bigserial PRIMARY KEY, name text NOT NULL, "
    "created timestamptz NOT NULL DEFAULT now(), "
    "current boolean NOT NULL, meta bytea NOT NULL, "
    "token_table bytea NOT NULL)";
constexpr char kCreateCurrent[] =
    "CREATE UNIQUE INDEX IF NOT EXISTS foretoken_crest_current "
    "ON foretoken_crest_versions (name) WHERE current";

template <typename T>
void AppendBigEndian(T value, std::string& out) {
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
  }
}

}  // namespace

absl::Status PgPublisher::Begin() {
  // The schema by itself: it stays whatever becomes of the version. The lock
  // keeps two first builders apart.
  FORETOKEN_RETURN_IF_ERROR(Run("begin", "BEGIN"));
  FORETOKEN_RETURN_IF_ERROR(
      Run("lock schema",
          absl::StrCat("SELECT pg_advisory_xact_lock(", kLockClass, ", 0)")));
  FORETOKEN_RETURN_IF_ERROR(Run("create versions", kCreateVersions));
  FORETOKEN_RETURN_IF_ERROR(Run("create current", kCreateCurrent));
  FORETOKEN_RETURN_IF_ERROR(Run("commit", "COMMIT"));

  FORETOKEN_RETURN_IF_ERROR(Run("begin", "BEGIN"));
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult lock,
      connection_->Exec("lock name",
                        absl::StrCat("SELECT pg_try_advisory_xact_lock(",
                                     kLockClass, ", hashtext($1))"),
                        {PgParam::Text(name_)}));
  if (!lock.Bool(0, 0)) {
    return absl::AbortedError(absl::StrCat(
        "datastore \"", name_, "\": another build is publishing it"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult next,
      connection_->Exec("next version",
                        "SELECT nextval(pg_get_serial_sequence("
                        "'foretoken_crest_versions', 'version'))"));
  version_ = next.Int8(0, 0);
  const std::string rows = RowsTable(version_);
  FORETOKEN_RETURN_IF_ERROR(
      Run("create rows",
          absl::StrCat("CREATE TABLE ", rows,
                       " (key bigint NOT NULL, record bytea NOT NULL)")));
  buffer_.assign("PGCOPY\n\377\r\n\0", 11);
  AppendBigEndian<uint32_t>(0, buffer_);  // flags
  AppendBigEndian<uint32_t>(0, buffer_);  // header extension
  // FREEZE: the rows are visible to all once this transaction is.
  return connection_->BeginCopyIn("copy rows",
                                  absl::StrCat("COPY ", rows,
                                               " (key, record) FROM STDIN "
                                               "(FORMAT binary, FREEZE)"));
}

absl::Status PgPublisher::Add(uint64_t ngram_hash, absl::string_view record) {
  AppendBigEndian<uint16_t>(2, buffer_);  // fields
  AppendBigEndian<uint32_t>(8, buffer_);
  AppendBigEndian(ngram_hash, buffer_);
  AppendBigEndian(static_cast<uint32_t>(record.size()), buffer_);
  buffer_.append(record.data(), record.size());
  if (buffer_.size() < kBufferBytes) return absl::OkStatus();
  const absl::Status status = connection_->PutCopyData(buffer_);
  buffer_.clear();
  return status;
}

absl::Status PgPublisher::Publish(const CrestMeta& meta) {
  AppendBigEndian<uint16_t>(0xffff, buffer_);  // the end
  FORETOKEN_RETURN_IF_ERROR(connection_->PutCopyData(buffer_));
  connection_->set_timeout(kSlowStatement);
  FORETOKEN_RETURN_IF_ERROR(connection_->EndCopyIn());
  const std::string rows = RowsTable(version_);
  FORETOKEN_RETURN_IF_ERROR(
      Run("index rows", absl::StrCat("CREATE INDEX ON ", rows, " (key)")));
  FORETOKEN_RETURN_IF_ERROR(Run("analyze rows", "ANALYZE " + rows));
  FORETOKEN_RETURN_IF_ERROR(
      connection_
          ->Exec("retire version",
                 "UPDATE foretoken_crest_versions SET current = false "
                 "WHERE name = $1 AND current",
                 {PgParam::Text(name_)})
          .status());
  FORETOKEN_RETURN_IF_ERROR(
      connection_
          ->Exec("enter version",
                 "INSERT INTO foretoken_crest_versions "
                 "(version, name, current, meta, token_table) "
                 "VALUES ($1, $2, true, $3, $4)",
                 {PgParam::Int8(version_), PgParam::Text(name_),
                  PgParam::Bytea(EncodeMeta(meta)),
                  PgParam::Bytea(EncodeTokenTable(table_, meta))})
          .status());
  FORETOKEN_RETURN_IF_ERROR(Run("commit", "COMMIT"));
  const absl::Status pruned = Prune();
  if (!pruned.ok()) {
    FORETOKEN_LOG(kWarning, "old versions of ", name_,
                  " stay for now: ", std::string(pruned.message()));
  }
  return absl::OkStatus();
}

absl::Status PgPublisher::Prune() {
  connection_->set_timeout(2 * kPruneTimeout);
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult old,
      connection_->Exec("find old versions",
                        "SELECT version FROM foretoken_crest_versions "
                        "WHERE name = $1 AND NOT current "
                        "ORDER BY version DESC OFFSET 1",
                        {PgParam::Text(name_)}));
  for (int row = 0; row < old.rows(); ++row) {
    const int64_t version = old.Int8(row, 0);
    FORETOKEN_RETURN_IF_ERROR(Run("begin", "BEGIN"));
    FORETOKEN_RETURN_IF_ERROR(
        Run("limit waiting",
            absl::StrCat("SET LOCAL lock_timeout = ",
                         absl::ToInt64Milliseconds(kPruneTimeout))));
    // It may have become the current one since.
    FORETOKEN_ASSIGN_OR_RETURN(
        const PgResult deleted,
        connection_->Exec("delete old version",
                          "DELETE FROM foretoken_crest_versions "
                          "WHERE version = $1 AND NOT current "
                          "RETURNING version",
                          {PgParam::Int8(version)}));
    if (deleted.rows() > 0) {
      FORETOKEN_RETURN_IF_ERROR(
          Run("drop old rows", "DROP TABLE IF EXISTS " + RowsTable(version)));
    }
    FORETOKEN_RETURN_IF_ERROR(Run("commit", "COMMIT"));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::crest
