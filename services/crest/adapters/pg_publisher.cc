#include "services/crest/adapters/pg_publisher.h"

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

// Rows are sent in pieces of this size rather than one message each.
constexpr size_t kBufferBytes = size_t{256} << 10;
// The server may take long to build an index, without sending anything.
constexpr absl::Duration kSlowStatement = absl::Minutes(30);
// Time to wait for the readers of an old version; if they take longer, the next
// publication prunes it.
constexpr absl::Duration kPruneTimeout = absl::Seconds(10);

constexpr char kCreateVersions[] =
    "CREATE TABLE IF NOT EXISTS foretoken_crest_versions ("
    "version bigserial PRIMARY KEY, name text NOT NULL, "
    "created timestamptz NOT NULL DEFAULT now(), "
    "current boolean NOT NULL, meta bytea NOT NULL, "
    "token_table bytea NOT NULL)";
// Guarantees one current version per name, whatever the publishers do.
constexpr char kCreateCurrent[] =
    "CREATE UNIQUE INDEX IF NOT EXISTS foretoken_crest_current "
    "ON foretoken_crest_versions (name) WHERE current";

}  // namespace

absl::Status PgPublisher::Begin() {
  // The schema has a transaction of its own, so that it stays even if the
  // version is rolled back. The lock serialises first builders: CREATE ... IF
  // NOT EXISTS of two sessions at once may still fail.
  const auto create_schema = [&]() -> absl::Status {
    FORETOKEN_RETURN_IF_ERROR(connection_->Run(
        "lock schema",
        absl::StrCat("SELECT pg_advisory_xact_lock(", kPgLockClass, ", 0)")));
    FORETOKEN_RETURN_IF_ERROR(
        connection_->Run("create versions", kCreateVersions));
    return connection_->Run("create current", kCreateCurrent);
  };
  FORETOKEN_RETURN_IF_ERROR(connection_->InTransaction(create_schema));

  // This transaction stays open until Publish: a lost connection or a destroyed
  // publisher rolls everything back.
  FORETOKEN_RETURN_IF_ERROR(connection_->Run("begin", "BEGIN"));
  FORETOKEN_RETURN_IF_ERROR(LockName(*connection_, name_));
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult next,
      connection_->Exec("next version",
                        "SELECT nextval(pg_get_serial_sequence("
                        "'foretoken_crest_versions', 'version'))"));
  version_ = next.Int8(0, 0);
  const std::string rows = RowsTable(version_);
  FORETOKEN_RETURN_IF_ERROR(connection_->Run(
      "create rows", absl::StrCat("CREATE TABLE ", rows,
                                  " (key bigint NOT NULL, record bytea NOT "
                                  "NULL)")));
  // Header of the binary COPY format: signature, flags, length of the
  // extension.
  buffer_.assign("PGCOPY\n\377\r\n\0", 11);
  AppendBigEndian<uint32_t>(0, buffer_);  // flags
  AppendBigEndian<uint32_t>(0, buffer_);  // header extension
  // FREEZE: saves a later VACUUM; allowed because the table is new.
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

absl::StatusOr<int64_t> PgPublisher::Publish(const CrestMeta& meta) {
  AppendBigEndian<uint16_t>(0xffff, buffer_);  // the end
  FORETOKEN_RETURN_IF_ERROR(connection_->PutCopyData(buffer_));
  // The build of the index is one statement, however large the table.
  connection_->set_timeout(kSlowStatement);
  FORETOKEN_RETURN_IF_ERROR(connection_->EndCopyIn());
  const std::string rows = RowsTable(version_);
  // Indexing after the load is faster than maintaining an index during it.
  FORETOKEN_RETURN_IF_ERROR(connection_->Run(
      "index rows", absl::StrCat("CREATE INDEX ON ", rows, " USING ",
                                 rows_.index, " (key)")));
  FORETOKEN_RETURN_IF_ERROR(
      connection_->Run("analyze rows", "ANALYZE " + rows));
  FORETOKEN_RETURN_IF_ERROR(
      connection_->Run("retire version",
                       "UPDATE foretoken_crest_versions SET current = false "
                       "WHERE name = $1 AND current",
                       {PgParam::Text(name_)}));
  FORETOKEN_RETURN_IF_ERROR(
      connection_->Run("enter version",
                       "INSERT INTO foretoken_crest_versions "
                       "(version, name, current, meta, token_table) "
                       "VALUES ($1, $2, true, $3, $4)",
                       {PgParam::Int8(version_), PgParam::Text(name_),
                        PgParam::Bytea(EncodeMeta(meta)),
                        PgParam::Bytea(EncodeTokenTable(table_, meta))}));
  FORETOKEN_RETURN_IF_ERROR(connection_->Run("commit", "COMMIT"));
  // The version is published, whether or not old ones can be pruned.
  const absl::Status pruned = Prune();
  if (!pruned.ok()) {
    FORETOKEN_LOG(kWarning, "old versions of ", name_,
                  " are kept for now: ", std::string(pruned.message()));
  }
  return version_;
}

absl::Status PgPublisher::Prune() {
  connection_->set_timeout(2 * kPruneTimeout);
  // Keeps the newest version that is not current, for readers that have not
  // switched yet.
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult old,
      connection_->Exec("find old versions",
                        "SELECT version FROM foretoken_crest_versions "
                        "WHERE name = $1 AND NOT current "
                        "ORDER BY version DESC OFFSET 1",
                        {PgParam::Text(name_)}));
  for (int row = 0; row < old.rows(); ++row) {
    const int64_t version = old.Int8(row, 0);
    const auto remove = [&]() -> absl::Status {
      FORETOKEN_RETURN_IF_ERROR(connection_->LimitLockWaits(kPruneTimeout));
      // It may have become the current one since.
      FORETOKEN_ASSIGN_OR_RETURN(
          const PgResult deleted,
          connection_->Exec("delete old version",
                            "DELETE FROM foretoken_crest_versions "
                            "WHERE version = $1 AND NOT current "
                            "RETURNING version",
                            {PgParam::Int8(version)}));
      if (deleted.rows() == 0) return absl::OkStatus();
      return connection_->Run("drop old rows",
                              "DROP TABLE IF EXISTS " + RowsTable(version));
    };
    FORETOKEN_RETURN_IF_ERROR(connection_->InTransaction(remove));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::crest
