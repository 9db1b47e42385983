#include "services/crest/adapters/pg_origin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

// Timeout of a publication's COPY and of the statements of its transaction.
constexpr absl::Duration kPublishTimeout = absl::Seconds(60);

absl::StatusOr<VersionInfo> InfoOf(const PgVersion& version) {
  absl::Time created;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, version.created, &created, &error)) {
    return absl::InternalError(absl::StrCat("version ", version.version,
                                            ": created ", version.created, ": ",
                                            error));
  }
  return VersionInfo{version.version, version.current,
                     absl::ToUnixSeconds(created), version.meta};
}

absl::StatusOr<std::vector<VersionInfo>> ListOf(PgStore& store,
                                                const std::string& name) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<PgVersion> all, store.List());
  std::vector<VersionInfo> versions;
  for (const PgVersion& version : all) {
    if (version.name != name) continue;
    FORETOKEN_ASSIGN_OR_RETURN(VersionInfo info, InfoOf(version));
    versions.push_back(std::move(info));
  }
  return versions;
}

}  // namespace

PgOrigin::PgOrigin(std::string name, const PgOriginOptions& options)
    : name_(std::move(name)), options_(options) {}

absl::StatusOr<VersionInfo> PgOrigin::Current() {
  if (poll_ == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(
        poll_, PgStore::Connect(options_.url, options_.poll_timeout));
  }
  // PgStore::Current would read the token table at every poll.
  absl::StatusOr<std::vector<VersionInfo>> versions = ListOf(*poll_, name_);
  if (!versions.ok()) {
    // Reconnect at the next poll: a broken connection never recovers.
    poll_ = nullptr;
    return versions.status();
  }
  for (const VersionInfo& info : *versions) {
    if (info.current) return info;
  }
  return absl::NotFoundError(
      absl::StrCat("datastore \"", name_, "\": no version is published"));
}

absl::StatusOr<std::unique_ptr<ServedVersion>> PgOrigin::Load(
    const VersionInfo& version) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<PgStore> store,
      PgStore::Connect(options_.url, options_.load_timeout));
  FORETOKEN_ASSIGN_OR_RETURN(const PgVersion now, store->Current(name_));
  // Published since the poll; the next poll finds it.
  if (now.version != version.version) {
    return absl::AbortedError(absl::StrCat(
        "version ", now.version, " has replaced version ", version.version));
  }
  auto served = std::make_unique<ServedVersion>();
  served->info = version;
  if (CrestIndex::BytesFor(version.meta) <=
      static_cast<uint64_t>(options_.index_memory)) {
    FORETOKEN_ASSIGN_OR_RETURN(CrestIndex index, store->LoadIndex(now));
    served->index = std::make_unique<const CrestIndex>(std::move(index));
    return served;
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      TokenTable table, DecodeTokenTable(AsBytes(now.token_table), now.meta));
  // Copies what it needs: the row worker calls it on its own thread for as long
  // as the version is served.
  const auto connect =
      [options = options_,
       version = now.version]() -> absl::StatusOr<std::unique_ptr<RowFetcher>> {
    FORETOKEN_ASSIGN_OR_RETURN(
        std::unique_ptr<PgStore> own,
        PgStore::Connect(options.url, options.lookup_timeout));
    return PgStore::MakeFetcher(std::move(own), version);
  };
  // Connect once here, so that a version that cannot be read never replaces one
  // that can.
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<RowFetcher> first, connect());
  RowWorkerOptions worker = options_.rows;
  worker.cache_bytes = options_.index_memory;
  served->rows = std::make_unique<RowWorker>(worker, now.meta, std::move(table),
                                             std::move(first), connect);
  return served;
}

absl::StatusOr<std::vector<VersionInfo>> PgOrigin::List() {
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<PgStore> store,
      PgStore::Connect(options_.url, options_.poll_timeout));
  return ListOf(*store, name_);
}

absl::StatusOr<int64_t> PgOrigin::Switch(int64_t version) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<PgStore> store,
      PgStore::Connect(options_.url, options_.poll_timeout));
  return store->Switch(name_, version);
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> PgOrigin::NewVersion(
    const CrestMeta&, const TokenTable& table) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<PgStore> store,
                             PgStore::Connect(options_.url, kPublishTimeout));
  return PgStore::NewVersion(std::move(store), name_, table,
                             options_.published);
}

}  // namespace foretoken::crest
