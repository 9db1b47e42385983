// Lookup messages: validation of requests, contents of answers.
// Thread-safe: functions without state.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_MESSAGES_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_MESSAGES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/drafting/crest/crest_tree.h"
#include "foretoken/v1/crest.pb.h"

namespace foretoken::crest {

// InvalidArgument names the first field out of its bounds.
absl::Status CheckRequest(const v1::CrestLookupRequest& request,
                          int max_tree_nodes);

// Sets n, the first max_nodes nodes of `tree`, and their counts and shares.
void FillResponse(int n, const CrestTree& tree, int max_nodes, int64_t version,
                  v1::CrestLookupResponse& response);

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_MESSAGES_H_
