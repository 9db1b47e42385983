// CREST datastores in PostgreSQL.
//
//   foretoken_crest_versions(version, name, created, current, meta,
//                            token_table)          one row a version
//   foretoken_crest_rows_<version>(key, record)    one table a version
//
// A version is written by one transaction: its table, its rows (binary COPY),
// its index, and the switch of `current`. Readers see the old version or the
// new one, whole; whatever stops a builder, the server rolls back. The version
// before the current one is kept for readers that have not switched yet.
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_STORE_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "services/crest/adapters/pg_connection.h"
#include "services/crest/core/cached_source.h"

namespace foretoken::crest {

struct PgVersion {
  int64_t version = 0;
  std::string name;
  std::string created;  // UTC, ISO 8601
  bool current = false;
  CrestMeta meta;
  std::string token_table;  // empty in lists
  // Why `meta` could not be read: it is empty then. Only in lists.
  absl::Status damage;
};

// How look-ups through PostgreSQL take a server that is slow or gone. A
// statement's timeout is the connection's (PgStore::Connect).
struct FetchOptions {
  // After a connection was lost, the next attempt to connect waits this long,
  // and twice as long after each that fails. A look-up before that fails at
  // once, as Unavailable.
  absl::Duration first_wait = absl::Milliseconds(50);
  absl::Duration longest_wait = absl::Seconds(10);
};

// InvalidArgument unless the name is 1..48 lower-case letters, digits, _ and -.
absl::Status CheckDatastoreName(const std::string& name);

class PgStore {
 public:
  // `url` as PgConnection takes it. `timeout`: of one statement.
  static absl::StatusOr<std::unique_ptr<PgStore>> Connect(
      const std::string& url, absl::Duration timeout = absl::Seconds(60));

  // By name, newest first. Empty where nothing was ever published. A version
  // whose meta is damaged is listed as such and hides no other.
  absl::StatusOr<std::vector<PgVersion>> List();
  // NotFound where `name` has no version.
  absl::StatusOr<PgVersion> Current(const std::string& name);

  // Reads and checks every row of the version.
  absl::StatusOr<CrestIndex> LoadIndex(const PgVersion& version);

  // Look-ups of this version by one prepared statement each. Takes the store's
  // connection over, and connects again when it was lost.
  static absl::StatusOr<std::unique_ptr<RowFetcher>> MakeFetcher(
      std::unique_ptr<PgStore> store, const PgVersion& version,
      const FetchOptions& options = {});

  // OK where this user could publish `name` now; leaves nothing behind.
  absl::Status CheckPublishable(const std::string& name);

  // Removes one version, or all of them, damaged ones too, in one transaction.
  // A current version that is removed leaves its name without one. NotFound
  // names what is not there; Aborted where readers hold it for too long.
  absl::Status Drop(const std::string& name, std::optional<int64_t> version);

  // Begins a new version; Publish makes it current and prunes old ones. Aborted
  // where another build is publishing the same name. Takes the connection over.
  static absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      std::unique_ptr<PgStore> store, const std::string& name,
      const TokenTable& table);

 private:
  explicit PgStore(std::unique_ptr<PgConnection> connection)
      : connection_(std::move(connection)) {}

  absl::StatusOr<bool> HasSchema();
  absl::StatusOr<std::vector<int64_t>> VersionsOf(
      const std::string& name, std::optional<int64_t> version);
  // Runs `body` between BEGIN and COMMIT; ROLLBACK where it fails.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> body);
  absl::Status Run(const std::string& what, const std::string& sql) {
    return connection_->Exec(what, sql).status();
  }

  std::unique_ptr<PgConnection> connection_;
};

// The rows' table of a version.
std::string RowsTable(int64_t version);

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_STORE_H_
