// Writes one new version of a datastore into PostgreSQL, in one transaction.
//
// Everything happens between BEGIN and COMMIT: if the builder or the server
// dies in between, the previous version stays. Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/drafting/crest/snapshot_writer.h"
#include "services/crest/adapters/pg_connection.h"
#include "services/crest/adapters/pg_store.h"

namespace foretoken::crest {

class PgPublisher final : public DatastoreSink {
 public:
  // `rows.index`: one of RowIndexes().
  PgPublisher(std::unique_ptr<PgConnection> connection, std::string name,
              const TokenTable& table, RowOptions rows)
      : connection_(std::move(connection)),
        name_(std::move(name)),
        table_(table),
        rows_(std::move(rows)) {}

  // Creates the schema if it is missing, takes the name's lock and creates the
  // table of rows. Aborted if another publisher holds the lock.
  absl::Status Begin();

  absl::Status Add(uint64_t ngram_hash, absl::string_view record) override;

  // Succeeds as soon as the version is current. Pruning older versions may fail
  // because readers hold them; the next publication tries again.
  absl::StatusOr<int64_t> Publish(const CrestMeta& meta) override;

 private:
  absl::Status Prune();

  const std::unique_ptr<PgConnection> connection_;
  const std::string name_;
  const TokenTable table_;
  const RowOptions rows_;
  int64_t version_ = 0;
  std::string buffer_;  // COPY data not sent yet
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_
