#include "tests/lab/rest_service/rest_service.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/lab/rest_service/rest_origin.h"

namespace foretoken::crest {

absl::StatusOr<std::vector<DatastoreSpec>> RestService::Snapshots() const {
  std::set<std::string> names;
  for (const std::string& text : crest.datastores) {
    FORETOKEN_ASSIGN_OR_RETURN(const DatastoreSpec spec,
                               DatastoreSpec::Parse(text));
    names.insert(spec.name);
  }
  std::vector<DatastoreSpec> specs;
  for (const std::string& text : snapshots) {
    FORETOKEN_ASSIGN_OR_RETURN(DatastoreSpec spec, DatastoreSpec::Parse(text));
    if (spec.file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("REST snapshot \"", text, "\": want NAME=FILE"));
    }
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("datastore \"", spec.name, "\": named twice"));
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

void RestService::AddFlags(Flags& flags) {
  crest.AddFlags(flags);
  flags.List("rest", &snapshots, "NAME=FILE, REST snapshots to serve");
  flags.Require("rest",
                [this] { return std::string(Snapshots().status().message()); });
}

absl::StatusOr<std::unique_ptr<CrestServer>> RestService::Make(
    metrics::Registry& registry) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<DatastoreSpec> specs,
                             Snapshots());
  std::vector<NamedOrigin> origins;
  for (const DatastoreSpec& spec : specs) {
    origins.push_back(
        {spec.name,
         std::make_unique<RestOrigin>(spec.file, crest.postgres.index_memory),
         /*load_at_start=*/true});
  }
  return crest.Make(registry, std::move(origins));
}

}  // namespace foretoken::crest
