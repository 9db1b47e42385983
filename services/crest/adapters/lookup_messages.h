// Lookup messages: what a request may be, what an answer holds.
// Thread-safe: functions without state.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_MESSAGES_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_MESSAGES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_tree.h"
#include "foretoken/v1/crest.pb.h"

namespace foretoken::crest {

// Tokens of a request's context at most; n-grams are shorter.
inline constexpr int kMaxContext = 16;

// InvalidArgument names the first field out of its bounds.
absl::Status CheckRequest(const v1::CrestLookupRequest& request,
                          int max_tree_nodes);

// FailedPrecondition unless the request's tokenizer is the datastore's. A
// request without a fingerprint is not checked: drafts are hints.
absl::Status CheckFingerprint(const v1::CrestLookupRequest& request,
                              const CrestMeta& meta);

// n, the first max_nodes nodes of `tree` and their counts. A node's probability
// is the share of the matches that pass through it, as CrestDrafter's; it never
// rises along a path.
void FillResponse(int n, const CrestTree& tree, int max_nodes, int64_t version,
                  v1::CrestLookupResponse& response);

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_MESSAGES_H_
