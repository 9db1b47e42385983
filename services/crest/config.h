// The crest service's configuration: one struct made of its parts' options.
#ifndef FORETOKEN_SERVICES_CREST_CONFIG_H_
#define FORETOKEN_SERVICES_CREST_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "services/crest/adapters/pg_origin.h"
#include "services/crest/server.h"

namespace foretoken::crest {

// What one datastore is: NAME=FILE, a snapshot, or NAME=postgres, the versions
// published under that name in the database of FORETOKEN_POSTGRES_URL.
struct DatastoreSpec {
  std::string name;
  std::string file;  // empty: PostgreSQL

  // InvalidArgument names the text and what was wanted.
  static absl::StatusOr<DatastoreSpec> Parse(const std::string& text);
};

struct CrestOptions {
  std::vector<std::string> datastores;  // as DatastoreSpec::Parse takes them
  PgOriginOptions postgres;
  std::string tokenizer;  // a path; empty: none
  CrestServerOptions server;
};

struct CrestConfig {
  rpc::ServerOptions rpc;
  metrics::ExposerOptions metrics;
  CrestOptions crest;
  std::string effective;  // to be logged

  static absl::StatusOr<CrestConfig> Parse(int argc, const char* const* argv);
};

// Opens the datastores, snapshots at once and whole, and starts their watchers.
// InvalidArgument for a bad specification, two of one name, or none; for a
// snapshot what CrestIndex says of it. A datastore in PostgreSQL is no error
// here, whatever state it is in. `registry` must outlive the server.
absl::StatusOr<std::unique_ptr<CrestServer>> MakeCrestServer(
    const CrestOptions& options, metrics::Registry& registry);

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CONFIG_H_
