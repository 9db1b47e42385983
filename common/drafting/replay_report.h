// The figures of a replay as JSON and as a table.
#ifndef FORETOKEN_COMMON_DRAFTING_REPLAY_REPORT_H_
#define FORETOKEN_COMMON_DRAFTING_REPLAY_REPORT_H_

#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/drafting/replay.h"

namespace foretoken {

// Costs per unit over all sets; 0 if nothing was counted.
struct ReplayCostSummary {
  explicit ReplayCostSummary(const ReplayCosts& costs);

  double draft_us_p50, draft_us_p99;  // CPU time of this thread
  double draft_wall_us_p50, draft_wall_us_p99;
  double insert_us_per_token;  // Commit, per committed token
  double insert_wall_us_per_token;
  double prompt_us_per_token;      // StartRequest, per prompt token
  double request_bytes_per_token;  // at the end of a turn, prompt and output
  double history_bytes_per_token;  // at the end of a set
};

// {"mode","max_tree_nodes","sets":[{"file","turns","prompt_tokens",
// "output_tokens","tokens","rounds","accept_length",
// "accept_length_without_loops","mean_tree_nodes","zero_accept_share",
// "rounds_by_length","categories":{name:{"turns","tokens","rounds",
// "accept_length","rounds_by_length"}}}],
// "draft_us":{"p50","p99"},"draft_wall_us":{"p50","p99"},
// "insert_us_per_token","insert_wall_us_per_token","prompt_us_per_token",
// "request_bytes_per_token","history_bytes_per_token"}
// rounds_by_length[i]: rounds that committed i + 1 tokens.
Json ReplayJson(const std::string& mode, int max_tree_nodes,
                const std::vector<ReplaySetResult>& sets,
                const ReplayCostSummary& costs);

// The same for human readers, each line ending in a newline.
std::string ReplayTable(const std::string& mode, int max_tree_nodes,
                        const std::vector<ReplaySetResult>& sets,
                        const ReplayCostSummary& costs);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_REPLAY_REPORT_H_
