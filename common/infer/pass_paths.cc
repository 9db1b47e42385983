#include "common/infer/pass_paths.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace foretoken {

void PathTokens(const PassSession& source, int32_t row,
                std::vector<TokenId>& path) {
  path.clear();
  for (int32_t r = row; r != kRootParent; r = source.parents[r]) {
    path.push_back(source.tokens[r]);
  }
  std::reverse(path.begin(), path.end());
}

absl::Status CheckPath(const PassPlan& plan, const PlanSession& session,
                       absl::Span<const int32_t> rows) {
  int32_t parent = kRootParent;
  for (const int32_t row : rows) {
    if (row < 0 || row >= session.rows) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "session %d: commit of row %d, the last pass had rows 0..%d",
          session.id, row, session.rows - 1));
    }
    if (plan.rows[session.first_row + row].parent != parent) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "session %d: commit of row %d, which is no child of the row before",
          session.id, row));
    }
    parent = session.first_row + row;
  }
  return absl::OkStatus();
}

}  // namespace foretoken
