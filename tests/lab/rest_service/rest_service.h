// The crest service with REST snapshots beside its datastores, so that requests
// can be drafted for as REST drafts. A client names them as any other:
// crest:datastore=NAME.
#ifndef FORETOKEN_TESTS_LAB_REST_SERVICE_REST_SERVICE_H_
#define FORETOKEN_TESTS_LAB_REST_SERVICE_REST_SERVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/run_service.h"
#include "services/crest/config.h"

namespace foretoken::crest {

struct RestService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-lab-crest", "The crest service with REST snapshots.", 50054,
      9104};

  CrestService crest;
  // NAME=FILE, each a snapshot of `foretoken-lab build-rest`.
  std::vector<std::string> snapshots;

  void AddFlags(Flags& flags);
  // As CrestService::Make; InvalidArgument for a bad or duplicate name.
  absl::StatusOr<std::unique_ptr<CrestServer>> Make(
      metrics::Registry& registry) const;

 private:
  absl::StatusOr<std::vector<DatastoreSpec>> Snapshots() const;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_TESTS_LAB_REST_SERVICE_REST_SERVICE_H_
