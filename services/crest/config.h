// The crest service: options, flags, start.
#ifndef FORETOKEN_SERVICES_CREST_CONFIG_H_
#define FORETOKEN_SERVICES_CREST_CONFIG_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/run_service.h"
#include "services/crest/adapters/pg_origin.h"
#include "services/crest/server.h"

namespace foretoken::crest {

// One datastore: NAME=FILE, a snapshot, or NAME=postgres, the versions
// published under that name in the database of FORETOKEN_POSTGRES_URL.
struct DatastoreSpec {
  std::string name;
  std::string file;  // empty: PostgreSQL

  // InvalidArgument names the text and what was wanted.
  static absl::StatusOr<DatastoreSpec> Parse(const std::string& text);
};

struct CrestService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-crest",
      "Serves the token trees that follow n-grams, from datastores.", 50054,
      9104};

  std::vector<std::string> datastores;  // as DatastoreSpec::Parse takes them
  PgOriginOptions postgres;
  std::string tokenizer;  // a path; empty: none
  CrestServerOptions server;

  void AddFlags(Flags& flags);
  // Opens the datastores and starts their watchers. A snapshot is loaded whole;
  // the state of a datastore in PostgreSQL is never an error. InvalidArgument
  // for a bad specification, a duplicate name, or no datastore; CrestIndex
  // errors for a snapshot. `more`: datastores after those of the flags, with
  // other names. `registry` must outlive the server.
  absl::StatusOr<std::unique_ptr<CrestServer>> Make(
      metrics::Registry& registry, std::vector<NamedOrigin> more = {}) const;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CONFIG_H_
