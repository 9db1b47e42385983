#include "services/crest/config.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/crest/core/snapshot_origin.h"

namespace foretoken::crest {
namespace {

constexpr char kPostgres[] = "postgres";
constexpr size_t kMaxDatastores = 64;  // each has a thread

absl::StatusOr<std::vector<DatastoreSpec>> ParseSpecs(
    const std::vector<std::string>& texts) {
  if (texts.empty() || texts.size() > kMaxDatastores) {
    return absl::InvalidArgumentError(
        absl::StrCat(texts.size(), " datastores: want 1..", kMaxDatastores,
                     " of NAME=FILE or NAME=postgres"));
  }
  std::vector<DatastoreSpec> specs;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    FORETOKEN_ASSIGN_OR_RETURN(DatastoreSpec spec, DatastoreSpec::Parse(text));
    if (!names.insert(spec.name).second) {
      // The name is what requests choose by, and each has its own version,
      // thread and metrics.
      return absl::InvalidArgumentError(
          absl::StrCat("datastore \"", spec.name, "\": named twice"));
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

void AddIngestFlags(Flags& flags, IngestOptions& ingest, RowOptions& rows) {
  flags.Bool("enable-ingest", &ingest.enabled,
             "Serve Ingest: every caller may publish a datastore built from "
             "text");
  IngestLimits& limits = ingest.limits;
  flags.Int64("ingest-documents", &limits.documents, {1, int64_t{1} << 40},
              "Maximum documents of an Ingest");
  flags.Int64("ingest-bytes", &limits.bytes, {1, int64_t{1} << 40},
              "Maximum bytes of text of an Ingest");
  flags.Int64("ingest-memory", &limits.memory_bytes,
              {int64_t{32} << 20, int64_t{1} << 40},
              "Maximum memory of a build beside the served datastores, in "
              "bytes");
  flags.Int("ingest-threads", &limits.threads, {1, 256}, "Threads of a build");
  flags.String("ingest-folder", &limits.folder,
               "Folder for a build's files; empty: the system's");
  flags.Choice("ingest-index", &rows.index, RowIndexes(),
               "Index on the n-grams of a version that an Ingest publishes in "
               "PostgreSQL");
  flags.Duration("ingest-timeout", &ingest.timeout,
                 {absl::Seconds(1), absl::Hours(24)},
                 "Maximum duration of an Ingest, whatever its deadline");
}

}  // namespace

absl::StatusOr<DatastoreSpec> DatastoreSpec::Parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "datastore \"", text, "\": want NAME=FILE or NAME=postgres"));
  }
  // Names may not contain "=", files may: the first one divides.
  DatastoreSpec spec;
  spec.name = text.substr(0, equals);
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(spec.name));
  std::string where = text.substr(equals + 1);
  if (where != kPostgres) spec.file = std::move(where);
  return spec;
}

void CrestService::AddFlags(Flags& flags) {
  flags.List("datastore", &datastores,
             "NAME=FILE (a snapshot) or NAME=postgres (the versions of that "
             "name in PostgreSQL); the first is the default of requests");
  flags.Secret("postgres-url", &postgres.url, "Connection URL of PostgreSQL");
  flags.String("tokenizer", &tokenizer,
               "Model directory or tokenizer file; versions of another "
               "tokenizer are refused; required by --enable-ingest");
  flags.Int64("index-memory", &postgres.index_memory,
              {0, std::numeric_limits<int64_t>::max()},
              "Maximum bytes of a datastore in memory: a larger one is read "
              "from its file, or from PostgreSQL behind a cache of this size");
  flags.Duration("watch-interval", &server.datastores.watch_interval,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Interval between checks for a new version");
  flags.Duration("postgres-timeout", &postgres.lookup_timeout,
                 {absl::Milliseconds(1), absl::Minutes(1)},
                 "Timeout of a look-up in PostgreSQL");
  server.lookup.streams.AddFlags(flags, "Lookup streams");
  flags.Int("max-pending", &server.lookup.max_pending, {1, 1 << 16},
            "Maximum unanswered look-ups of a stream");
  flags.Int("lookup-queue", &postgres.rows.max_waiting, {1, 1 << 20},
            "Maximum look-ups queued for PostgreSQL, all streams together");
  flags.Int("max-tree-nodes", &server.lookup.max_tree_nodes, {1, 256},
            "Maximum draft nodes of a tree");
  flags.Bool("enable-publish", &server.enable_publish,
             "Serve Publish: every caller may switch versions");
  AddIngestFlags(flags, server.ingest, postgres.published);
  flags.Require("datastore", [this] {
    // Parsed here only for the message that names the flag; Make parses again
    // what is then known to be good.
    return std::string(ParseSpecs(datastores).status().message());
  });
  flags.Require("postgres-url", [this]() -> std::string {
    const auto specs = ParseSpecs(datastores);
    // Errors of the list are reported by the check above; a second message
    // would only repeat them.
    if (!specs.ok() || !postgres.url.empty()) return "";
    for (const DatastoreSpec& spec : *specs) {
      if (spec.file.empty()) return "required by --datastore NAME=postgres";
    }
    return "";
  });
  flags.Require("tokenizer", [this]() -> std::string {
    return server.ingest.enabled && tokenizer.empty()
               ? "required by --enable-ingest"
               : "";
  });
}

absl::StatusOr<std::unique_ptr<CrestServer>> CrestService::Make(
    metrics::Registry& registry, std::vector<NamedOrigin> more) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<DatastoreSpec> specs,
                             ParseSpecs(datastores));
  std::shared_ptr<const Tokenizer> loaded;
  if (!tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(loaded, Tokenizer::LoadShared(tokenizer));
  }
  std::vector<NamedOrigin> origins;
  for (const DatastoreSpec& spec : specs) {
    NamedOrigin named;
    named.name = spec.name;
    // A file is read before the server answers, or it does not start.
    // PostgreSQL may be down at start, so versions from it are loaded later and
    // requests get no drafts meanwhile.
    named.load_at_start = !spec.file.empty();
    if (spec.file.empty()) {
      named.origin = std::make_unique<PgOrigin>(spec.name, postgres);
    } else {
      named.origin =
          std::make_unique<SnapshotOrigin>(spec.file, postgres.index_memory);
    }
    origins.push_back(std::move(named));
  }
  for (NamedOrigin& named : more) origins.push_back(std::move(named));
  return CrestServer::Create(server, std::move(origins), std::move(loaded),
                             registry);
}

}  // namespace foretoken::crest
