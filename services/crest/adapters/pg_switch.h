// Makes a version that is already published the current one of its name.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_SWITCH_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_SWITCH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/crest/adapters/pg_connection.h"

namespace foretoken::crest {

// One transaction, under the lock that builds of `name` take: Aborted while one
// is publishing. Returns the version that was current, 0 for none. NotFound
// names a version that is not there. The connection is not to be used after an
// error.
absl::StatusOr<int64_t> SwitchVersion(PgConnection& connection,
                                      const std::string& name, int64_t version);

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_SWITCH_H_
