// The report of `bench modes`, as JSON and as Markdown.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_REPORT_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_REPORT_H_

#include <cstddef>
#include <string>

#include "common/base/json.h"
#include "tools/cli/mode_bench/mode_bench.h"

namespace foretoken::mode_bench {

// runs: for each concurrency (null: a trace) and mode
//   mode, concurrency, baseline
//   pairs, requests, refused, tokens
//   tokens_per_s, tokens_per_s_low, tokens_per_s_high  the mean over pairs
//   tokens_per_s_by_pair
//   ratio_to_off, ratio_low, ratio_high  of geometric means, pair by pair
//   accept_length                        tokens of a round; 1 without rounds
//   by_drafter: {drafted, accepted, rounds, degraded_rounds}
//   ttft_ms, itl_ms, latency_ms: {p50, p95, p99}
// pooled: ratio_to_off, ratio_low, ratio_high of a mode over all concurrencies,
//   in the order of the modes, without the baseline
// best_single: for each concurrency and each mode `auto`: the best other mode
//   by the even pairs, and by the odd pairs ratio_to_best, ratio_low,
//   ratio_high
// method: how it was measured
//
// Intervals are 95 %, by Student's t. A number that is not known (an interval
// of one pair) is null.
Json ModeBenchJson(const ModeBenchOptions& options, size_t prompts,
                   const ModeBenchResult& result);

// The same as tables in Markdown.
std::string ModeBenchMarkdown(const Json& report);

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_REPORT_H_
