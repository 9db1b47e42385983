// The datastores of a server's configuration, by name.
//
// Thread-safe once made: the set never changes.
#ifndef FORETOKEN_SERVICES_CREST_CORE_DATASTORES_H_
#define FORETOKEN_SERVICES_CREST_CORE_DATASTORES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/crest/core/datastore.h"

namespace foretoken::crest {

struct NamedOrigin {
  std::string name;
  std::unique_ptr<VersionOrigin> origin;
  // If true, the server starts only with a version loaded; else it starts
  // without one, empty, and serves one as soon as it is loaded.
  bool load_at_start = false;
};

class Datastores {
 public:
  // `origins`: at least one; the first is the default; names are distinct.
  // Returns load_at_start errors, with the name. `observer` must outlive it.
  static absl::StatusOr<std::unique_ptr<Datastores>> Create(
      std::vector<NamedOrigin> origins, const DatastoreOptions& options,
      DatastoreObserver& observer);

  // NotFound unless the name is configured; "" is the default.
  absl::StatusOr<Datastore*> Find(const std::string& name) const;

  // True if at least one datastore can answer.
  bool AnyReady() const;
  const std::map<std::string, std::unique_ptr<Datastore>>& all() const {
    return by_name_;
  }

 private:
  Datastores() = default;

  std::map<std::string, std::unique_ptr<Datastore>> by_name_;
  Datastore* default_ = nullptr;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_DATASTORES_H_
