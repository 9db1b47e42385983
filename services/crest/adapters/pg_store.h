// CREST datastores in PostgreSQL.
//
//   foretoken_crest_versions(version, name, created, current, meta,
//                            token_table)          one row per version
//   foretoken_crest_rows_<version>(key, record)    one table per version
//
// A version is written by one transaction: its table, its rows (binary COPY),
// its index, and the switch of `current`. Readers see either the old version
// or the new one, never a mixture; if a builder fails, the server rolls back.
// The previous version is kept for readers that have not switched yet.
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_STORE_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  // Why `meta` could not be decoded (it is empty then). Only in lists.
  absl::Status damage;
};

// How the rows of a new version are stored.
struct RowOptions {
  // Access method of the index on the key. A hash index serves the same
  // look-ups; which is smaller and faster depends on the datastore's size.
  std::string index = "btree";
};

// The access methods that RowOptions takes.
inline const std::vector<std::string>& RowIndexes() {
  static const auto* const methods =
      new std::vector<std::string>{"btree", "hash"};
  return *methods;
}

// Reconnection of look-ups through PostgreSQL. A statement's timeout is the
// connection's (PgStore::Connect).
struct FetchOptions {
  // Back-off after a lost connection; doubled by each failed attempt. Look-ups
  // in the meantime fail at once with Unavailable.
  absl::Duration first_wait = absl::Milliseconds(50);
  absl::Duration longest_wait = absl::Seconds(10);
};

// InvalidArgument unless the name is 1..48 lower-case letters, digits, _ and -.
absl::Status CheckDatastoreName(const std::string& name);

class PgStore {
 public:
  // `url`: as in PgConnection::Open. `timeout`: per statement.
  static absl::StatusOr<std::unique_ptr<PgStore>> Connect(
      const std::string& url, absl::Duration timeout = absl::Seconds(60));

  // All versions by name, newest first; empty if nothing was ever published. A
  // version with a damaged meta is listed with its `damage`.
  absl::StatusOr<std::vector<PgVersion>> List();
  // NotFound if `name` has no current version.
  absl::StatusOr<PgVersion> Current(const std::string& name);

  // Reads and checks every row of the version.
  absl::StatusOr<CrestIndex> LoadIndex(const PgVersion& version);

  // Fetches rows of this version, by one prepared statement per call. Takes
  // over the store's connection, and reconnects if it is lost.
  static absl::StatusOr<std::unique_ptr<RowFetcher>> MakeFetcher(
      std::unique_ptr<PgStore> store, int64_t version,
      const FetchOptions& options = {});

  // OK if this user could publish `name` now; leaves nothing behind.
  absl::Status CheckPublishable(const std::string& name);

  // Removes one version, or all of them, damaged ones included, in one
  // transaction. Removing the current version leaves `name` without one.
  // NotFound names what does not exist; Aborted if readers hold it too long.
  absl::Status Drop(const std::string& name, std::optional<int64_t> version);

  // Makes a published version the current one of `name`; returns the previous
  // one, 0 for none. NotFound names a version that does not exist; Aborted
  // while a build is publishing `name`.
  absl::StatusOr<int64_t> Switch(const std::string& name, int64_t version);

  // Begins a new version; Publish makes it current and prunes old ones. Aborted
  // while another build is publishing `name`; InvalidArgument for an unknown
  // index. Takes over the connection.
  static absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      std::unique_ptr<PgStore> store, const std::string& name,
      const TokenTable& table, const RowOptions& rows = {});

 private:
  explicit PgStore(std::unique_ptr<PgConnection> connection)
      : connection_(std::move(connection)) {}

  absl::StatusOr<bool> HasSchema();
  absl::StatusOr<std::vector<int64_t>> VersionsOf(
      const std::string& name, std::optional<int64_t> version);

  std::unique_ptr<PgConnection> connection_;
};

// First key of the advisory locks of datastores: "crst".
inline constexpr int32_t kPgLockClass = 1668445044;

// Takes the lock under which versions of `name` are published and switched,
// until the transaction ends. Aborted if another connection holds it.
absl::Status LockName(PgConnection& connection, const std::string& name);

// The table that holds a version's rows.
std::string RowsTable(int64_t version);

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_STORE_H_
