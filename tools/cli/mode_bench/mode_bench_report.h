// The report of `bench modes`, as JSON and as Markdown.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_REPORT_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_REPORT_H_

#include <cstddef>
#include <set>
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
//   decode_tokens_per_s                  the same without prefill: tokens after
//     each request's first, over the time from that to its last, summed
//   decode_tokens_per_s_low, decode_tokens_per_s_high
//   decode_ratio_to_off, decode_ratio_low, decode_ratio_high
//   accept_length                        tokens of a round; 1 without rounds
//   by_drafter: {drafted, accepted, rounds, degraded_rounds, shortened_drafts}
//   shortened_drafts                     late, or cut off before they were done
//   phases_ms: {draft, verify, other}    mean of a round; other is transport,
//     and whatever else lies between a request's first token and its last
//   ttft_ms, itl_ms, latency_ms: {p50, p95, p99}
// pooled: ratio_to_off, ratio_low, ratio_high of a mode over all concurrencies,
//   in the order of the modes, without the baseline
// left_out: for each cell with shortened drafts of a mode that promises whole
//   ones (all but `auto`): mode, concurrency, shortened_drafts, reason. Such a
//   mode is in none of the other lists
// best_single: for each concurrency and each mode `auto`: the best other mode
//   by the even pairs, and by the odd pairs ratio_to_best, ratio_low,
//   ratio_high
// machine: `machine`, null if it was not measured
// method: how it was measured
//
// Intervals are 95 %, by Student's t. A number that is not known (an interval
// of one pair) is null.
Json ModeBenchJson(const ModeBenchOptions& options, size_t prompts,
                   const ModeBenchResult& result, Json machine = Json());

// The modes that the report leaves out.
std::set<std::string> ModesLeftOut(const ModeBenchResult& result);

// The same as tables in Markdown.
std::string ModeBenchMarkdown(const Json& report);

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_REPORT_H_
