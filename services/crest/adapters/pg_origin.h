// A datastore whose versions are published in PostgreSQL.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_ORIGIN_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_ORIGIN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/crest/adapters/pg_store.h"
#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

struct PgOriginOptions {
  std::string url;  // as PgConnection takes it; holds a secret
  // In bytes. A version with a larger index is queried in PostgreSQL, behind a
  // cache of this size.
  int64_t index_memory = int64_t{1} << 30;
  absl::Duration lookup_timeout = absl::Milliseconds(250);  // one statement
  absl::Duration poll_timeout = absl::Seconds(2);
  absl::Duration load_timeout = absl::Seconds(30);  // one wait for the server
  RowWorkerOptions rows;
  RowOptions published;  // of new versions
};

class PgOrigin final : public VersionOrigin {
 public:
  PgOrigin(std::string name, const PgOriginOptions& options);

  absl::StatusOr<VersionInfo> Current() override;
  absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) override;
  absl::StatusOr<std::vector<VersionInfo>> List() override;
  absl::StatusOr<int64_t> Switch(int64_t version) override;
  absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      const CrestMeta& meta, const TokenTable& table) override;

 private:
  const std::string name_;
  const PgOriginOptions options_;
  std::unique_ptr<PgStore> poll_;  // connection of Current; null: none yet
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_ORIGIN_H_
