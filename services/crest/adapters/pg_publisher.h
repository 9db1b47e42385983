// Writes one new version of a datastore into PostgreSQL, in one transaction.
//
// Everything happens between BEGIN and COMMIT: a builder or server that dies
// anywhere in between leaves what was there before. Owned by one thread.
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

  // Makes the schema where it is missing, takes the name's lock, opens the
  // rows' table. Aborted where another publisher holds the lock.
  absl::Status Begin();

  absl::Status Add(uint64_t ngram_hash, absl::string_view record) override;

  // OK as soon as the version is current. Pruning older versions may fail, for
  // readers that hold them; the next publication tries again.
  absl::Status Publish(const CrestMeta& meta) override;

  int64_t version() const { return version_; }

 private:
  absl::Status Run(const std::string& what, const std::string& sql) {
    return connection_->Exec(what, sql).status();
  }
  absl::Status Prune();

  const std::unique_ptr<PgConnection> connection_;
  const std::string name_;
  const TokenTable table_;
  int64_t version_ = 0;
  std::string buffer_;  // COPY data not sent yet
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_PUBLISHER_H_
