#include "services/crest/core/datastores.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {

absl::StatusOr<std::unique_ptr<Datastores>> Datastores::Create(
    std::vector<NamedOrigin> origins, const DatastoreOptions& options,
    DatastoreObserver& observer) {
  FORETOKEN_CHECK(!origins.empty());
  std::unique_ptr<Datastores> stores(new Datastores());
  for (NamedOrigin& named : origins) {
    auto store = std::make_unique<Datastore>(
        named.name, std::move(named.origin), options, observer);
    if (named.load_at_start) {
      const absl::Status status = store->LoadNow();
      if (!status.ok()) {
        return Annotate(status, absl::StrCat("datastore \"", named.name, "\""));
      }
    }
    if (stores->default_ == nullptr) stores->default_ = store.get();
    const bool added =
        stores->by_name_.emplace(named.name, std::move(store)).second;
    FORETOKEN_CHECK(added);
  }
  // Watchers start last, after nothing can fail any more.
  for (const auto& [name, store] : stores->by_name_) store->Watch();
  return stores;
}

absl::StatusOr<Datastore*> Datastores::Find(const std::string& name) const {
  if (name.empty()) return default_;
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second.get();
  // The name may be as long as a message.
  return absl::NotFoundError(
      absl::StrCat("datastore \"", name.substr(0, 64),
                   "\" is not configured on this server"));
}

bool Datastores::AnyReady() const {
  return std::any_of(by_name_.begin(), by_name_.end(), [](const auto& entry) {
    return entry.second->state().ok();
  });
}

}  // namespace foretoken::crest
