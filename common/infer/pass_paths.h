// Paths through a pass: rows from a child of the committed context downwards.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_PASS_PATHS_H_
#define FORETOKEN_COMMON_INFER_PASS_PATHS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "common/infer/pass_plan.h"

namespace foretoken {

// Replaces `path` with the tokens from the root to `row`, a row of `source`.
void PathTokens(const PassSession& source, int32_t row,
                std::vector<TokenId>& path);

// Checks that `rows` (relative to the first row of `session`) form a path that
// starts at a child of the context. InvalidArgument names session and row.
absl::Status CheckPath(const PassPlan& plan, const PlanSession& session,
                       absl::Span<const int32_t> rows);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_PASS_PATHS_H_
