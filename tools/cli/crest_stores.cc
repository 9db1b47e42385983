#include "tools/cli/crest_stores.h"

#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/bytes.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#if FORETOKEN_HAVE_POSTGRES
#include "services/crest/adapters/pg_store.h"
#include "services/crest/core/cached_source.h"
#endif

namespace foretoken::cli {

// Datastore names have neither slashes nor dots.
bool IsSnapshotPath(const std::string& file_or_name) {
  // Existing files count as paths even without a slash or dot; a name that
  // equals such a file cannot be opened from here.
  return file_or_name.find_first_of("/.") != std::string::npos ||
         access(file_or_name.c_str(), F_OK) == 0;
}

#if FORETOKEN_HAVE_POSTGRES

namespace {

absl::StatusOr<std::unique_ptr<crest::PgStore>> ConnectStore() {
  const char* url = std::getenv("FORETOKEN_POSTGRES_URL");
  // In the environment alone, as the URL may hold a password and arguments are
  // public.
  if (url == nullptr || *url == '\0') {
    return absl::FailedPreconditionError(
        "FORETOKEN_POSTGRES_URL: not set; it names the database of datastores");
  }
  return crest::PgStore::Connect(url);
}

absl::StatusOr<std::shared_ptr<CrestSource>> OpenNamedSource(
    const std::string& name, const Tokenizer* tokenizer,
    uint64_t index_memory) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<crest::PgStore> store,
                             ConnectStore());
  FORETOKEN_ASSIGN_OR_RETURN(const crest::PgVersion version,
                             store->Current(name));
  if (tokenizer != nullptr) {
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckTokenizer(version.meta, tokenizer->fingerprint()), name));
  }
  // The whole index if it fits: then no look-up waits for the database.
  if (CrestIndex::BytesFor(version.meta) <= index_memory) {
    FORETOKEN_ASSIGN_OR_RETURN(CrestIndex index, store->LoadIndex(version));
    return std::make_shared<CrestIndexSource>(std::move(index));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      TokenTable table,
      DecodeTokenTable(AsBytes(version.token_table), version.meta));
  // The version is pinned by its number: a publish during the command does not
  // mix two versions.
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<crest::RowFetcher> fetcher,
      crest::PgStore::MakeFetcher(std::move(store), version.version));
  return std::make_shared<crest::CachedSource>(
      version.meta, std::move(table), std::move(fetcher), index_memory);
}

}  // namespace

absl::StatusOr<Json> ListDatastores() {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<crest::PgStore> store,
                             ConnectStore());
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<crest::PgVersion> versions,
                             store->List());
  // Damaged versions are listed too, with the defect.
  Json list = Json::array();
  for (const crest::PgVersion& version : versions) {
    Json& entry = list.emplace_back(Json{{"name", version.name},
                                         {"version", version.version},
                                         {"created", version.created},
                                         {"current", version.current}});
    if (!version.damage.ok()) {
      entry["damage"] = std::string(version.damage.message());
      continue;
    }
    entry["max_n"] = version.meta.max_n;
    entry["entries"] = version.meta.entries;
    entry["nodes"] = version.meta.nodes;
    entry["bytes"] = version.meta.record_bytes;
    entry["tokenizer_fingerprint"] =
        HexDigest(version.meta.tokenizer_fingerprint);
  }
  return list;
}

absl::Status DropDatastore(const std::string& name, int64_t version) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<crest::PgStore> store,
                             ConnectStore());
  return store->Drop(
      name, version > 0 ? std::optional<int64_t>(version) : std::nullopt);
}

absl::Status CheckTarget(const std::string& out, const std::string& name) {
  // The same checks as at the end of the build, before it starts.
  if (name.empty()) return SnapshotWriter::CheckTarget(out);
  FORETOKEN_RETURN_IF_ERROR(crest::CheckDatastoreName(name));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<crest::PgStore> store,
                             ConnectStore());
  return store->CheckPublishable(name);
}

#else

namespace {

absl::Status NoPostgres() {
  return absl::FailedPreconditionError(
      "this build lacks PostgreSQL (FORETOKEN_SERVICES=OFF): want a snapshot "
      "file");
}

absl::StatusOr<std::shared_ptr<CrestSource>> OpenNamedSource(const std::string&,
                                                             const Tokenizer*,
                                                             uint64_t) {
  return NoPostgres();
}

}  // namespace

absl::StatusOr<Json> ListDatastores() { return NoPostgres(); }
absl::Status DropDatastore(const std::string&, int64_t) { return NoPostgres(); }
absl::Status CheckTarget(const std::string& out, const std::string& name) {
  return name.empty() ? SnapshotWriter::CheckTarget(out) : NoPostgres();
}

#endif

absl::StatusOr<std::shared_ptr<CrestSource>> OpenCrestSource(
    const std::string& file_or_name, const Tokenizer* tokenizer,
    uint64_t index_memory) {
  if (!IsSnapshotPath(file_or_name)) {
    return OpenNamedSource(file_or_name, tokenizer, index_memory);
  }
  FORETOKEN_ASSIGN_OR_RETURN(CrestIndex index, CrestIndex::Open(file_or_name));
  if (tokenizer != nullptr) {
    FORETOKEN_RETURN_IF_ERROR(Annotate(
        CheckTokenizer(index.meta(), tokenizer->fingerprint()), file_or_name));
  }
  return std::make_shared<CrestIndexSource>(std::move(index));
}

absl::StatusOr<CrestMeta> ReadMeta(const std::string& file_or_name) {
  if (!IsSnapshotPath(file_or_name)) {
#if FORETOKEN_HAVE_POSTGRES
    FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<crest::PgStore> store,
                               ConnectStore());
    FORETOKEN_ASSIGN_OR_RETURN(const crest::PgVersion version,
                               store->Current(file_or_name));
    return version.meta;
#else
    return NoPostgres();
#endif
  }
  return CrestIndex::ReadMeta(file_or_name);
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> OpenSink(
    const std::string& out, const std::string& name,
    [[maybe_unused]] const std::string& index, const CrestMeta& meta,
    const TokenTable& table) {
  if (name.empty()) return SnapshotWriter::Create(out, meta, table);
#if FORETOKEN_HAVE_POSTGRES
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<crest::PgStore> store,
                             ConnectStore());
  return crest::PgStore::NewVersion(std::move(store), name, table, {index});
#else
  return NoPostgres();
#endif
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view flag,
                                    const std::string& text) {
  static constexpr struct {
    const char* suffix;
    uint64_t factor;
  } kUnits[] = {{"KiB", uint64_t{1} << 10},
                {"MiB", uint64_t{1} << 20},
                {"GiB", uint64_t{1} << 30},
                {"TiB", uint64_t{1} << 40}};
  absl::string_view digits = text;
  uint64_t factor = 1;
  for (const auto& unit : kUnits) {
    if (absl::ConsumeSuffix(&digits, unit.suffix)) {
      factor = unit.factor;
      break;
    }
  }
  uint64_t value = 0;
  // Checked by division: the product would wrap.
  if (!absl::SimpleAtoi(digits, &value) ||
      value > std::numeric_limits<uint64_t>::max() / factor) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", text, "\": want bytes, e.g. 512MiB or 1000000"));
  }
  return value * factor;
}

}  // namespace foretoken::cli
