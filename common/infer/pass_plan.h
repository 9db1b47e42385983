// PassPlan: one pass, validated and laid out for the kernels.
//
// The rows of all sessions are numbered consecutively (the global row); their
// KV stays in scratch until commit. Attention reads keys in blocks of
// kKvPageTokens path positions. Fully committed blocks are read from their
// pages. The other blocks are gathered into *tiles*, one per distinct run of
// rows: a row and those of its ancestors in the same block read one tile, each
// a different number of its keys. Thus a prefill chunk has one tile per block,
// and a tree has one per leaf.
#ifndef FORETOKEN_COMMON_INFER_PASS_PLAN_H_
#define FORETOKEN_COMMON_INFER_PASS_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/infer/backend.h"
#include "common/infer/kv_cache.h"
#include "common/infer/model_config.h"

namespace foretoken {

struct PlanTile {
  int32_t page = -1;          // page of its first `committed` keys
  int32_t committed = 0;      // 0..31
  std::vector<int32_t> rows;  // global rows of the keys after those
};

struct PlanSession {
  SessionId id = -1;
  int64_t committed = 0;  // length before the pass
  int32_t first_row = 0;  // global
  int32_t rows = 0;
  int32_t first_output = 0;  // index into PassPlan::output_rows
  int32_t outputs = 0;
  std::vector<int32_t> pages;  // fully committed blocks
};

struct PlanRow {
  int32_t session = 0;  // index into PassPlan::sessions
  TokenId token = 0;
  int32_t parent = -1;  // global row, or kRootParent
  int64_t position = 0;
  std::vector<int32_t> tiles;  // blocks after the full ones, ascending
  int32_t last_keys = 0;       // keys read in the last of them, 1..32
};

struct PassPlan {
  std::vector<PlanSession> sessions;
  std::vector<PlanRow> rows;
  std::vector<PlanTile> tiles;
  std::vector<int32_t> output_rows;  // global

  // Replaces the plan. The plan is empty after an error.
  absl::Status Build(absl::Span<const PassSession> pass,
                     const ModelConfig& config, const KvCache& cache,
                     int32_t max_rows);

  // Checks that `path` (relative to the first row of `session`) is a path that
  // starts at a child of the context. InvalidArgument names session and row.
  absl::Status CheckPath(const PlanSession& session,
                         absl::Span<const int32_t> path) const;

 private:
  absl::Status AddSession(const PassSession& source, const ModelConfig& config,
                          const KvCache& cache);
  absl::Status AddOutputs(const PassSession& source, PlanSession& session);
  void AddTiles(const PlanSession& session, const std::vector<int32_t>& pages);
};

// Replaces `path` with the tokens from the root to `row`, a row of `source`.
void PathTokens(const PassSession& source, int32_t row,
                std::vector<TokenId>& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_PASS_PLAN_H_
