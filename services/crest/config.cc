#include "services/crest/config.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/crest/core/file_origin.h"

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
      return absl::InvalidArgumentError(
          absl::StrCat("datastore \"", spec.name, "\": named twice"));
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

void AddStoreFlags(Flags& flags, CrestOptions* options, int64_t* index_memory) {
  flags.List("datastore", &options->datastores,
             "NAME=FILE (a snapshot) or NAME=postgres (the versions of that "
             "name in PostgreSQL); the first is the default of requests");
  flags.Secret("postgres-url", &options->postgres.url,
               "PostgreSQL's connection URL");
  flags.String("tokenizer", &options->tokenizer,
               "Model directory or tokenizer file that every version must "
               "belong to; wanted by --enable-ingest");
  flags.Int64("index-memory", index_memory,
              {0, std::numeric_limits<int64_t>::max()},
              "Bytes of one datastore in memory: a larger one is asked in "
              "PostgreSQL behind a cache of this size, or mapped");
  flags.Duration("watch-interval", &options->server.datastores.watch_interval,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Time between two looks for a new version");
  flags.Duration("postgres-timeout", &options->postgres.lookup_timeout,
                 {absl::Milliseconds(1), absl::Minutes(1)},
                 "Longest wait for PostgreSQL's answer to look-ups");
}

void AddServiceFlags(Flags& flags, CrestServerOptions* server,
                     PgOriginOptions* postgres) {
  flags.Int("max-streams", &server->lookup.max_streams, {1, 1 << 16},
            "Lookup streams open at once");
  flags.Duration("first-message-time", &server->lookup.first_message_time,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time that a new stream has to say something");
  flags.Int("max-pending", &server->lookup.max_pending, {1, 1 << 16},
            "Look-ups of one stream that may wait for their answers");
  flags.Int("lookup-queue", &postgres->rows.max_waiting, {1, 1 << 20},
            "Look-ups that may wait for PostgreSQL, all streams together");
  flags.Int("max-tree-nodes", &server->lookup.max_tree_nodes, {1, 256},
            "Draft nodes of one tree");
  flags.Duration("retry-after", &server->lookup.retry_after,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Hint that comes with RESOURCE_EXHAUSTED");
  flags.Bool("enable-publish", &server->enable_publish,
             "Serve Publish: whoever may call can switch versions");
  flags.Bool("enable-ingest", &server->ingest.enabled,
             "Serve Ingest: whoever may call can publish a datastore built "
             "from text");
  IngestLimits* limits = &server->ingest.limits;
  flags.Int64("ingest-documents", &limits->documents, {1, int64_t{1} << 40},
              "Documents of one Ingest");
  flags.Int64("ingest-bytes", &limits->bytes, {1, int64_t{1} << 40},
              "Bytes of text of one Ingest");
  flags.Int64("ingest-memory", &limits->memory_bytes,
              {int64_t{32} << 20, int64_t{1} << 40},
              "Bytes that a build may take beside what is held");
  flags.Int("ingest-threads", &limits->threads, {1, 256}, "Threads of a build");
  flags.String("ingest-folder", &limits->folder,
               "Where builds keep their files; empty: the system's");
  flags.Duration("ingest-timeout", &server->ingest.timeout,
                 {absl::Seconds(1), absl::Hours(24)},
                 "Longest Ingest, whatever deadline it has");
}

}  // namespace

absl::StatusOr<DatastoreSpec> DatastoreSpec::Parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "datastore \"", text, "\": want NAME=FILE or NAME=postgres"));
  }
  DatastoreSpec spec;
  spec.name = text.substr(0, equals);
  FORETOKEN_RETURN_IF_ERROR(CheckDatastoreName(spec.name));
  const std::string where = text.substr(equals + 1);
  if (where != kPostgres) spec.file = where;
  return spec;
}

absl::StatusOr<CrestConfig> CrestConfig::Parse(int argc,
                                               const char* const* argv) {
  CrestConfig config;
  CrestOptions& crest = config.crest;
  Flags flags("foretoken-crest",
              "Serves the token trees that follow n-grams, from datastores.");
  int64_t index_memory = static_cast<int64_t>(crest.postgres.index_memory);
  AddStoreFlags(flags, &crest, &index_memory);
  AddServiceFlags(flags, &crest.server, &crest.postgres);
  flags.Require("datastore", [&crest] {
    return std::string(ParseSpecs(crest.datastores).status().message());
  });
  flags.Require("postgres-url", [&crest]() -> std::string {
    const auto specs = ParseSpecs(crest.datastores);
    if (!specs.ok() || !crest.postgres.url.empty()) return "";
    for (const DatastoreSpec& spec : *specs) {
      if (spec.file.empty()) return "want it for --datastore NAME=postgres";
    }
    return "";
  });
  flags.Require("tokenizer", [&crest]() -> std::string {
    return crest.server.ingest.enabled && crest.tokenizer.empty()
               ? "want it with --enable-ingest"
               : "";
  });
  rpc::AddServerFlags(flags, "127.0.0.1:50054", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9104", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  crest.postgres.index_memory = static_cast<uint64_t>(index_memory);
  crest.server.ingest.retry_after = crest.server.lookup.retry_after;
  config.effective = flags.Effective();
  return config;
}

absl::StatusOr<std::unique_ptr<CrestServer>> MakeCrestServer(
    const CrestOptions& options, metrics::Registry& registry) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<DatastoreSpec> specs,
                             ParseSpecs(options.datastores));
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(options.tokenizer));
  }
  std::vector<NamedOrigin> origins;
  for (const DatastoreSpec& spec : specs) {
    NamedOrigin named;
    named.name = spec.name;
    named.load_at_start = !spec.file.empty();
    if (spec.file.empty()) {
      named.origin = std::make_unique<PgOrigin>(spec.name, options.postgres);
    } else {
      named.origin = std::make_unique<FileOrigin>(
          spec.file, options.postgres.index_memory);
    }
    origins.push_back(std::move(named));
  }
  return CrestServer::Create(options.server, std::move(origins),
                             std::move(tokenizer), registry);
}

}  // namespace foretoken::crest
