// Writes one new version of a datastore into PostgreSQL, in one transaction.
//
// Everything happens between BEGIN and COMMIT: if the builder or the server
// dies in between, the previous version stays. Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/drafting/crest/snapshot_writer.h"
#include "services/crest/adapters/pg_connection.h"

namespace foretoken::crest {

class PgPublisher final : public DatastoreSink {
 public:
  PgPublisher(std::unique_ptr<PgConnection> connection, std::string name,
              const TokenTable& table)
      : connection_(std::move(connection)),
        name_(std::move(name)),
        table_(table) {}

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
  int64_t version_ = 0;
  std::string buffer_;  // COPY data not sent yet
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_
