#include "services/crest/adapters/pg_origin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "services/crest/adapters/pg_connection.h"
#include "services/crest/adapters/pg_publisher.h"
#include "services/crest/adapters/pg_switch.h"

namespace foretoken::crest {
namespace {

// Of a build's publication: COPY and statements of its transaction.
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

class PgSink final : public VersionSink {
 public:
  explicit PgSink(std::unique_ptr<PgPublisher> publisher)
      : publisher_(std::move(publisher)) {}

  absl::Status Add(uint64_t ngram_hash, absl::string_view record) override {
    return publisher_->Add(ngram_hash, record);
  }
  absl::Status Publish(const CrestMeta& meta) override {
    return publisher_->Publish(meta);
  }
  int64_t version() const override { return publisher_->version(); }

 private:
  const std::unique_ptr<PgPublisher> publisher_;
};

}  // namespace

PgOrigin::PgOrigin(std::string name, const PgOriginOptions& options)
    : name_(std::move(name)), options_(options) {}

absl::StatusOr<VersionInfo> PgOrigin::Current() {
  if (poll_ == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(
        poll_, PgStore::Connect(options_.url, options_.poll_timeout));
  }
  // The list is light: it leaves the token tables where they are.
  absl::StatusOr<std::vector<VersionInfo>> versions = ListOf(*poll_, name_);
  if (!versions.ok()) {
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
  if (now.version != version.version) {
    return absl::AbortedError(absl::StrCat(
        "version ", now.version, " took the place of ", version.version));
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
      TokenTable table,
      DecodeTokenTable(
          {reinterpret_cast<const uint8_t*>(now.token_table.data()),
           now.token_table.size()},
          now.meta));
  // Rows are asked for by name of their table: the number suffices.
  PgVersion rows;
  rows.version = now.version;
  const auto connect = [options = options_,
                        rows]() -> absl::StatusOr<std::unique_ptr<RowFetcher>> {
    FORETOKEN_ASSIGN_OR_RETURN(
        std::unique_ptr<PgStore> own,
        PgStore::Connect(options.url, options.lookup_timeout));
    return PgStore::MakeFetcher(std::move(own), rows);
  };
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
      const std::unique_ptr<PgConnection> connection,
      PgConnection::Open(options_.url, options_.poll_timeout));
  return SwitchVersion(*connection, name_, version);
}

absl::StatusOr<std::unique_ptr<VersionSink>> PgOrigin::NewVersion(
    const CrestMeta&, const TokenTable& table) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<PgConnection> connection,
                             PgConnection::Open(options_.url, kPublishTimeout));
  auto publisher =
      std::make_unique<PgPublisher>(std::move(connection), name_, table);
  FORETOKEN_RETURN_IF_ERROR(publisher->Begin());
  return std::make_unique<PgSink>(std::move(publisher));
}

}  // namespace foretoken::crest
