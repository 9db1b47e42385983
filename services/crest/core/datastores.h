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
  // A version must be loaded before the server starts; else it starts without
  // and serves as soon as there is one.
  bool load_at_start = false;
};

class Datastores {
 public:
  // The first of `origins`, one at least, is the default; names are distinct.
  // Errors of a load_at_start, with the name. `observer` must outlive it.
  static absl::StatusOr<std::unique_ptr<Datastores>> Create(
      std::vector<NamedOrigin> origins, const DatastoreOptions& options,
      DatastoreObserver& observer);

  // NotFound unless the name is of the configuration; "" is the default.
  absl::StatusOr<Datastore*> Find(const std::string& name) const;

  // Some datastore can answer.
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
